-- Frees a lock from these holders, and grants it to waiters; at a node of Redlock it notifies the first of them. The call
-- names the holders, so if it is repeated after a lost answer, it does not free the lock of the next holder.
--
-- KEYS  1: the token counter; the lock, its queue, its waiters, the members of the group that holds the
--       lock, their details, the note of a forced release
-- ARGV  1 to 4: as in release_claim.lua; 5: how long a grace period lasts in milliseconds, '' if there are none; then the
--       holders: each by its owner, or, where it is another program, by the value of the lock
-- Answer: {how many were freed, notifications for waiters of the caller's client..}

-- include clock.lua
-- include raise.lua
-- include tokens.lua
-- include waiters.lua
-- include group.lua
-- include grant_next.lua
-- include record.lua

local lock, queue, waiters, members, details = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local freed = 0
-- GET fails on a value of another type, before anything is changed.
local value = redis.call('GET', lock)
local group = value and mode_of(value)
-- Nobody who has the lock now reclaims it after a failover. A server that may have forgotten grants does not know their tokens. See
-- reclaim.lua.
if ARGV[5] ~= '' then
  -- First a write that needs no memory, see mark.lua.
  redis.call('DEL', KEYS[7])
  local highest = ARGV[3] ~= 'closed' and string.format('%.0f', math.max(last_token(KEYS[1]), now)) or ''
  redis.call('SET', KEYS[7], highest, 'PX', ARGV[5])
end
for i = 6, #ARGV do
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
return {freed, unpack(grant_next(KEYS[1], lock, queue, waiters, members, details, group or nil))}
