-- Redlock, phase 2 at one node: raises the counter to the claim's token.
--
-- KEYS  for each claim: its token counter, the lock, the members of the group that holds the lock, their details
-- ARGV  for each claim: owner, token, how many tokens it wants
-- Answer for each claim, in order: 1 if the counter was lower, by as many, and the lock is still the owner's, so that it
--       was raised to the token just now; otherwise 0

-- include clock.lua
-- include peek.lua
-- include group.lua

local answers = {}
for claim = 1, #KEYS / 4 do
  local k = 4 * claim - 3
  local counter, lock, members, details = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local owner, token, many = ARGV[3 * claim - 2], ARGV[3 * claim - 1], ARGV[3 * claim]
  local value = peek(lock)
  -- TOKEN:SINCE:ROUND:LABEL of the owner
  local mine
  if type(value) == 'string' and mode_of(value) then
    is_alive(members, details)
    mine = redis.call('HGET', details, owner)
  elseif type(value) == 'string' and string.sub(value, 1, 33) == owner .. ':' then
    mine = string.sub(value, 34)
  end
  answers[claim] = 0
  if mine and tonumber(redis.call('GET', counter) or 0) + many <= tonumber(token) then
    redis.call('SET', counter, token)
    -- For those who look. A repeated call then answers 0, which is safe.
    mine = string.gsub(mine, '^%d+', token)
    local left = redis.call('PTTL', lock)
    if mode_of(value) then
      redis.call('HSET', details, owner, mine)
    elseif left > 0 then
      redis.call('SET', lock, owner .. ':' .. mine, 'PX', left)
    end
    answers[claim] = 1
  end
end
return answers
