-- Frees a lock whoever holds it, and grants it to those who wait.
--
-- KEYS  1: the token counter; the lock, its queue, the seats of those in the queue, the members of the group that holds the
--       lock, their details
-- ARGV  1 to 4: as in give_up.lua
-- Answer: {how many held it, then what to tell waiters of the caller's own process}

-- include clock.lua
-- include tokens.lua
-- include waiters.lua
-- include group.lua
-- include hand_on.lua

local lock, queue, seats, members, details = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local holders = 0
-- Reading it first refuses a value that is no lock of this kind.
local value = redis.call('GET', lock)
if value and mode_of(value) then
  is_alive(members, details)
  for _, owner in ipairs(redis.call('ZRANGE', members, 0, -1)) do
    if redis.call('HGET', details, owner) ~= '' then holders = holders + 1 end
  end
elseif value then
  holders = 1
end
redis.call('DEL', lock, members, details)
return {holders, unpack(hand_on(KEYS[1], lock, queue, seats, members, details))}
