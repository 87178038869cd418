-- Turns a writer into a reader, in one step. Owner, token and lease stay.
--
-- KEYS  the lock, its queue, the seats of those in the queue, the members of the group that holds the lock, their details
-- ARGV  1, 2: as in release.lua; 3: owner; 4: Redlock's round that was granted
-- Answer: as in release.lua; released: 1 if the owner is a reader now, by this call or an earlier one
--
-- A reader who stands first in the queue is woken, and lets others in.

-- include clock.lua
-- include queue.lua
-- include wake.lua
-- include group.lua
-- include record.lua

local lock, queue, seats, members, details = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, round = ARGV[3], ARGV[4] or ''
local value = redis.call('GET', lock) or ''
if mode_of(value) == '-1' then
  is_alive(members, details)
  if not is_of(owner .. ':' .. (redis.call('HGET', details, owner) or ''), owner, round) then return {0, ''} end
elseif is_of(value, owner, round) then
  local left = redis.call('PTTL', lock)
  begin_group(lock, members, details, '-1', math.max(left, 1))
  redis.call('HSET', details, owner, string.sub(value, 34))
  set_lease(members, owner, left * 1000)
  span(lock, members, details)
else
  return {0, ''}
end
return {1, wake_first(queue, seats, '-1')}
