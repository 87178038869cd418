-- The queue of a lock: a sorted set of owners by arrival on this server's clock, and a hash of their seats. A seat is
-- UNTIL:MODE:CLIENT:TICKET: how long the place is kept without a sign of life, how the lock is to be held, whom to wake.

local function leave(queue, seats, owner)
  redis.call('HDEL', seats, owner)
  return redis.call('ZREM', queue, owner)
end

-- Takes or keeps a place, and says whether it is the first: 1 or 0. `seat` is MODE:CLIENT:TICKET.
local function sit(queue, seats, owner, seat, keep)
  local life = string.format('%.0f', now + keep)
  if redis.call('HSET', seats, owner, life .. ':' .. seat) == 1 then
    local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    local place = now
    if tail and tonumber(tail) >= now then place = tonumber(tail) + 1 end
    redis.call('ZADD', queue, string.format('%.0f', place), owner)
  end
  redis.call('PEXPIRE', queue, 60000)
  redis.call('PEXPIRE', seats, 60000)
  return redis.call('ZRANK', queue, owner) == 0 and 1 or 0
end
