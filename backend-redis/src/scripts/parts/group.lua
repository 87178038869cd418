-- Those who hold a lock together: readers, or the holders of a semaphore's permits.
--
-- Meanwhile the lock's own key says GROUP .. MODE and lasts as long as the last of them, so that others see a lock that is
-- held. `members` is a sorted set of owners by the end of their leases, in microseconds; `details` is a hash from owner to
-- TOKEN:SINCE:ROUND:LABEL, or '' for one that has been let in from the queue and has not come yet. The lock's key
-- decides: without it, or with another value, the other two are left over from a group that is over.
local GROUP = '\31group:'

-- The mode of the group that this value of the lock's key stands for.
local function mode_of(value)
  return string.match(value, '^\31group:(-?%d+)$')
end

-- Drops members whose leases are over, and says whether any is left.
local function is_alive(members, details)
  while true do
    local first = redis.call('ZRANGE', members, 0, 0, 'WITHSCORES')
    if not first[1] then return false end
    if tonumber(first[2]) > now then return true end
    redis.call('ZREM', members, first[1])
    redis.call('HDEL', details, first[1])
  end
end

-- Lets the lock last exactly as long as its last member.
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

-- Begins a group without members: what an earlier one left behind is not theirs.
local function begin_group(lock, members, details, mode, ttl)
  redis.call('DEL', members, details)
  redis.call('SET', lock, GROUP .. mode, 'PX', ttl)
end
