-- Turns a writer into a reader, in one step. Owner, token and lease stay.
--
-- KEYS  1: the token counter; the lock, its queue, its waiters, the members of the group that holds the
--       lock, their details
-- ARGV  1 to 4: as in release_claim.lua; 5: owner; 6: the round of Redlock that was granted, '' for a single server
-- Answer: as in release_claim.lua, of one claim; released: 1 if the owner is a reader now, by this call or an earlier one
--
-- Readers at the head of the queue are granted the lock; at a node of Redlock the first is notified.

-- include clock.lua
-- include raise.lua
-- include tokens.lua
-- include waiters.lua
-- include group.lua
-- include grant_next.lua
-- include record.lua

local lock, queue, waiters, members, details = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, round = ARGV[5], ARGV[6]
local value = redis.call('GET', lock)
local group = value and mode_of(value)
if group == '-1' then
  is_alive(members, details)
  if not is_of(record_of(value, group, details, owner), owner, round) then return {0} end
else
  if not is_of(value, owner, round) then return {0} end
  local left = redis.call('PTTL', lock)
  begin_group(lock, members, details, '-1', math.max(left, 1))
  redis.call('HSET', details, owner, string.sub(value, 34))
  set_lease(members, owner, left * 1000)
  span(lock, members, details)
end
return {1, unpack(grant_next(KEYS[1], lock, queue, waiters, members, details, '-1'))}
