-- Turns a writer into a reader, in one step. Owner, token and lease stay.
--
-- KEYS  the lock, its queue, the seats of those in the queue, the members of the group that holds the lock, their details
-- ARGV  1, 2: as in release.lua; 3: owner; 4: Redlock's round that was granted
-- Answer: as in release.lua; released: 1 if the owner is a reader now, by this call or an earlier one
--
-- A reader who stands first in the queue is woken, and lets others in.

-- include clock.lua
-- include queue.lua
-- include first.lua
-- include wake.lua
-- include group.lua
-- include record.lua
-- include turn.lua

local lock, queue, seats, members, details = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if not turn(lock, members, details, ARGV[3], ARGV[4]) then return {0, ''} end
return {1, wake_first(queue, seats, '-1')}
