-- Redlock, phase 2 at one node: raises the counter to the claim's token.
--
-- KEYS  for each claim: its token counter, the lock, the members of the group that holds the lock, their details
-- ARGV  for each claim: owner, round, token, how many tokens it wants
-- Answer for each claim, in order: 1 if the counter was lower, by as many, and the lock is still the owner's, by this round,
--       so that it was raised to the token just now; otherwise 0

-- include clock.lua
-- include value_of.lua
-- include group.lua
-- include record.lua

local answers = {}
for claim = 1, #KEYS / 4 do
  local k, a = 4 * claim - 3, 4 * claim - 3
  local counter, lock, members, details = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local owner, round, token, many = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  local value = value_of(lock)
  local group = type(value) == 'string' and mode_of(value)
  if group then is_alive(members, details) end
  local mine = record_of(value, group, details, owner)
  answers[claim] = 0
  if is_of(mine, owner, round) and tonumber(redis.call('GET', counter) or 0) + many <= tonumber(token) then
    redis.call('SET', counter, token)
    -- The record shows the token to inspect. A repeated call then answers 0, which is safe.
    local rest = string.gsub(string.sub(mine, 34), '^%d+', token)
    local left = redis.call('PTTL', lock)
    if group then
      redis.call('HSET', details, owner, rest)
    elseif left > 0 then
      redis.call('SET', lock, owner .. ':' .. rest, 'PX', left)
    end
    answers[claim] = 1
  end
end
return answers
