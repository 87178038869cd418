-- Groups: readers, or the holders of a semaphore's permits, hold a lock together.
--
-- Meanwhile the value of the lock's key is GROUP .. MODE, and it expires with the longest lease, so that other programs see
-- a lock that is held. `members` is a sorted set of owners by the end of their leases, in microseconds; `details` is a hash from owner to
-- TOKEN:SINCE:ROUND:LABEL. The lock's key decides: without it, or with another value, the other two are left over from a group
-- that has ended.
local GROUP = '\31group:'

-- The mode of the group that this value of the lock's key stands for.
local function mode_of(value)
  return string.match(value, '^\31group:(-?%d+)$')
end

-- Removes members whose leases have ended, a bounded number of them. Returns whether any member is alive.
local function is_alive(members, details)
  for _ = 1, 50 do
    local first = redis.call('ZRANGE', members, 0, 0, 'WITHSCORES')
    if not first[1] then return false end
    if tonumber(first[2]) > now then return true end
    redis.call('ZREM', members, first[1])
    redis.call('HDEL', details, first[1])
  end
  local longest = redis.call('ZRANGE', members, -1, -1, 'WITHSCORES')[2]
  return longest and tonumber(longest) > now
end

-- Sets the expiry of the lock to the end of its longest lease.
local function span(lock, members, details)
  local ends = tonumber(redis.call('ZRANGE', members, -1, -1, 'WITHSCORES')[2])
  -- Leases end to the microsecond, keys to the millisecond.
  local left = string.format('%.0f', math.max(math.ceil((ends - now) / 1000), 0) + 1)
  redis.call('PEXPIRE', lock, left)
  redis.call('PEXPIRE', members, left)
  redis.call('PEXPIRE', details, left)
end

local function set_lease(members, owner, microseconds)
  redis.call('ZADD', members, string.format('%.0f', now + microseconds), owner)
end

-- Begins a group without members. Members that an earlier group has left behind are removed.
local function begin_group(lock, members, details, mode, ttl)
  redis.call('DEL', members, details)
  redis.call('SET', lock, GROUP .. mode, 'PX', ttl)
end

-- Adds a member, to a new group if none holds the lock.
local function join_group(lock, members, details, group, mode, owner, record, ttl)
  if not group then begin_group(lock, members, details, mode, ttl) end
  redis.call('HSET', details, owner, record)
  set_lease(members, owner, ttl * 1000)
  span(lock, members, details)
end
