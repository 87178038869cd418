-- Frees a lock that these hold, and grants it to those who wait. It names whom it frees: repeated after a lost answer, it
-- leaves the lock of a successor alone.
--
-- KEYS  1: the token counter; the lock, its queue, the seats of those in the queue, the members of the group that holds the
--       lock, their details
-- ARGV  1 to 4: as in give_up.lua; then the holders: each by its owner, or, where it is another program, by the value of
--       the lock
-- Answer: {how many were freed, then what to tell waiters of the caller's own process}

-- include clock.lua
-- include tokens.lua
-- include waiters.lua
-- include first.lua
-- include group.lua
-- include hand_on.lua
-- include record.lua
-- include free_named.lua

local lock, queue, seats, members, details = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local freed, value, group = free_named(lock, members, details, 5)
if value and not group then return {freed} end
return {freed, unpack(hand_on(KEYS[1], lock, queue, seats, members, details, group))}
