-- Extends leases: compare and extend, for many locks in one call.
--
-- KEYS  for each lock: the lock; for one that is not exclusive also the members of the group that holds it, their details
-- ARGV  for each lock: owner, ttl in milliseconds, '1' if it is exclusive, '3' if not: how many keys it has
-- Answer for each lock, in order: 1 extended, 0 not the owner's any more

-- include clock.lua
-- include peek.lua
-- include group.lua

-- Extends the lease of a member, and says whether it is one.
local function extend(lock, members, details, owner, ttl)
  local alive = is_alive(members, details)
  local mine = (redis.call('HGET', details, owner) or '') ~= ''
  if mine then set_lease(members, owner, ttl * 1000) end
  if alive then span(lock, members, details) end
  return mine and 1 or 0
end

local answers = {}
local k = 1
for i = 1, #ARGV / 3 do
  local lock, owner, ttl, alone = KEYS[k], ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i] == '1'
  local value = peek(lock)
  if type(value) ~= 'string' then
    answers[i] = 0
  elseif string.sub(value, 1, 32) == owner then
    -- Also for a reader: one that was a writer, and whose downgrade has not come to this node of Redlock.
    answers[i] = redis.call('PEXPIRE', lock, ttl)
  else
    answers[i] = not alone and mode_of(value) and extend(lock, KEYS[k + 1], KEYS[k + 2], owner, ttl) or 0
  end
  k = k + (alone and 1 or 3)
end
return answers
