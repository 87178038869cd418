-- Frees a lock that these hold, and grants it to those who wait; at a node of Redlock it wakes the first of them. It names
-- whom it frees: repeated after a lost answer, it leaves the lock of a successor alone.
--
-- KEYS  1: the token counter; the lock, its queue, its waiters, the members of the group that holds the
--       lock, their details
-- ARGV  1 to 4: as in give_up.lua; then the holders: each by its owner, or, where it is another program, by the value of
--       the lock
-- Answer: {how many were freed, then what to tell waiters of the caller's own process}

-- include clock.lua
-- include tokens.lua
-- include waiters.lua
-- include group.lua
-- include hand_on.lua
-- include record.lua

local lock, queue, waiters, members, details = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local freed = 0
-- Reading it first refuses a value that is no lock of this kind.
local value = redis.call('GET', lock)
local group = value and mode_of(value)
for i = 5, #ARGV do
  local name = ARGV[i]
  if group then
    freed = freed + redis.call('HDEL', details, name)
    redis.call('ZREM', members, name)
  elseif value and (value == name or is_of(value, name, '')) then
    redis.call('DEL', lock)
    value, freed = nil, 1
  end
end
if group and is_alive(members, details) then
  span(lock, members, details)
elseif group then
  redis.call('DEL', lock, members, details)
  value, group = nil, nil
end
if value and not group then return {freed} end
return {freed, unpack(hand_on(KEYS[1], lock, queue, waiters, members, details, group or nil))}
