-- Frees a lock that these hold, and wakes the first in its queue. It names whom it frees: repeated after a lost answer, it
-- leaves the lock of a successor alone.
--
-- KEYS  the lock, its queue, the seats of those in the queue, the members of the group that holds the lock, their details
-- ARGV  1, 2: as in release.lua; then the holders: each by its owner, or, where it is another program, by the value of
--       the lock
-- Answer: {how many were freed, ticket}; ticket: as in release.lua

-- include clock.lua
-- include queue.lua
-- include first.lua
-- include wake.lua
-- include group.lua
-- include record.lua
-- include free_named.lua

local lock, queue, seats, members, details = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local freed, value, group = free_named(lock, members, details, 3)
if value and not group then return {freed, ''} end
return {freed, wake_first(queue, seats, group)}
