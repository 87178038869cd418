-- Redlock: extends leases at one node.
--
-- KEYS  for each lock: the lock, the members of the group that holds it, their details
-- ARGV  for each lock: owner, the round that was granted, ttl in milliseconds
-- Answer for each lock, in order: 1 extended, 0 not the owner's by this round
--
-- What another round of the same claim has here does not count: it may be given back at any moment.

-- include clock.lua
-- include peek.lua
-- include group.lua
-- include record.lua

local answers = {}
for i = 1, #KEYS / 3 do
  local lock, members, details = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local owner, round, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local value = peek(lock)
  answers[i] = 0
  if type(value) == 'string' and mode_of(value) then
    local alive = is_alive(members, details)
    if is_of(owner .. ':' .. (redis.call('HGET', details, owner) or ''), owner, round) then
      set_lease(members, owner, ttl * 1000)
      answers[i] = 1
    end
    if alive then span(lock, members, details) end
  elseif type(value) == 'string' and is_of(value, owner, round) then
    -- Also for a reader: one that was a writer, and whose downgrade has not come here.
    answers[i] = redis.call('PEXPIRE', lock, ttl)
  end
end
return answers
