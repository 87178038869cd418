-- Turns a writer into a reader, in one step. Owner, token and lease stay.
--
-- KEYS  1: the token counter; the lock, its queue, the seats of those in the queue, the members of the group that holds the
--       lock, their details
-- ARGV  1 to 4: as in give_up.lua; 5: owner
-- Answer: as in give_up.lua, of one claim; released: 1 if the owner is a reader now, by this call or an earlier one
--
-- Readers who stand first in the queue come in.

-- include clock.lua
-- include tokens.lua
-- include waiters.lua
-- include first.lua
-- include group.lua
-- include hand_on.lua
-- include record.lua
-- include turn.lua

local lock, queue, seats, members, details = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
if not turn(lock, members, details, ARGV[5], '') then return {0} end
return {1, unpack(hand_on(KEYS[1], lock, queue, seats, members, details, '-1'))}
