-- The waiters of a lock. `queue` is a sorted set of owners by arrival on this server's clock. `waiters` is a hash:
--   OWNER    UNTIL:MODE:CLIENT:TICKET: how long the place is kept without a heartbeat, how the lock is to be held, which
--            waiter of which client to notify
--   +OWNER   gTOKENS:LEASE:SIGN:LABEL, if a release may grant the lock to it: how many tokens it wants, the length of a
--            provisional lease in milliseconds, the number of its last heartbeat. Claims of Redlock, and claims with a
--            lock delay, have none: they are notified, and ask
--   =        =ENDS:CLIENT, the last exclusive grant to a waiter, until it is released: the end of its provisional lease, and
--            its client. There is none where nobody else waits
-- ARGV 4 is how long a place is kept, in microseconds.
local keep = tonumber(ARGV[4])

local function leave(queue, waiters, owner)
  redis.call('HDEL', waiters, owner, '+' .. owner)
  return redis.call('ZREM', queue, owner)
end

-- The first waiter in the queue that has given a heartbeat in time, and its fields. Those before it lose their places.
local function first_of(queue, waiters)
  while true do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then return nil end
    local text = redis.call('HGET', waiters, owner) or ''
    local ends, mode, client, ticket = string.match(text, '^(%d+):(-?%d+):(.*):(%d+)$')
    local left = ends and tonumber(ends) - now
    -- No place is kept for longer than this: the clock was set back.
    if left and left > 0 and left <= 60000000 then return owner, {mode = mode, client = client, ticket = ticket} end
    leave(queue, waiters, owner)
  end
end

-- Takes or keeps a place, and says whether it is the first: 1 or 0. `waiter` is MODE:CLIENT:TICKET.
local function keep_place(queue, waiters, owner, waiter, form)
  local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  -- Without the queue its places are gone, too: a server can evict one of the two keys alone, and a field that is left would
  -- keep its owner from getting a place again.
  if not tail then redis.call('DEL', waiters) end
  local value = string.format('%.0f', now + keep) .. ':' .. waiter
  local new
  if form == '' then
    new = redis.call('HSET', waiters, owner, value)
  else
    new = redis.call('HSET', waiters, owner, value, '+' .. owner, form)
  end
  if new > 0 then
    local place = now
    if tail and tonumber(tail) >= now then place = tonumber(tail) + 1 end
    redis.call('ZADD', queue, 'NX', string.format('%.0f', place), owner)
  end
  redis.call('PEXPIRE', queue, 60000)
  redis.call('PEXPIRE', waiters, 60000)
  return redis.call('ZRANK', queue, owner) == 0 and 1 or 0
end

-- The lock is free. If there is still a note of the last grant, the grant was not released but has lapsed, so its client
-- probably hangs: waiters of that client that have given no heartbeat since lose their places.
local function drop_lapsed(queue, waiters)
  local ends, gone = string.match(redis.call('HGET', waiters, '=') or '', '^=(%d+):(.*)$')
  if not ends then return end
  redis.call('HDEL', waiters, '=')
  if tonumber(ends) > now then return end
  local since = tonumber(ends) - keep / 2
  for _, owner in ipairs(redis.call('ZRANGE', queue, 0, 999)) do
    local kept, client = string.match(redis.call('HGET', waiters, owner) or '', '^(%d+):%-?%d+:(.*):%d+$')
    if client == gone and tonumber(kept) - keep < since then leave(queue, waiters, owner) end
  end
end
