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

-- The first in the queue who still shows signs of life, and its seat. Those before it lose their places.
local function first_of(queue, seats)
  while true do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then return nil end
    local text = redis.call('HGET', seats, owner) or ''
    local ends, mode, client, ticket = string.match(text, '^(%d+):(-?%d+):(.*):(%d+)$')
    local left = ends and tonumber(ends) - now
    -- One that lasts longer than any can is from before the clock was set back.
    if left and left > 0 and left <= 60000000 then
      return owner, {ends = ends, mode = mode, client = client, ticket = ticket}
    end
    leave(queue, seats, owner)
  end
end
