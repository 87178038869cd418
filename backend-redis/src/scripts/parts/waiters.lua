-- The waiters of a lock. `queue` is a sorted set of owners by arrival on this server's clock. `waiters` is a hash:
--   OWNER    UNTIL:MODE:CLIENT:TICKET: how long the place is kept without a heartbeat, how the lock is to be held, which
--            waiter of which client to notify
--   +OWNER   gTOKENS:LEASE:SIGN:LABEL, if a release may grant the lock to it: how many tokens it wants, the length of a
--            provisional lease in milliseconds, the number of its last heartbeat. Otherwise it is notified, and asks: it is
--            :LABEL for a claim with a lock delay, p:LABEL for one that receives no notifications, and polls. Claims of
--            Redlock have none, or 'p'
--   =        =ENDS:CLIENT, the last exclusive grant to a waiter, until it is released: the end of its provisional lease, and
--            its client. There is none where nobody else waits
--   !        CLIENT:SINCE;.. the clients of grants that have lapsed: they have given no heartbeat since then
-- No call looks at more places than `budget`, however many there are: what it leaves is done by the next call.
-- ARGV 4 is how long a place is kept, in microseconds.
local keep = tonumber(ARGV[4])
local budget = 25

local function leave(queue, waiters, owner)
  redis.call('HDEL', waiters, owner, '+' .. owner)
  return redis.call('ZREM', queue, owner)
end

-- The same for one that has lost its place.
local function drop(queue, waiters, owner)
  leave(queue, waiters, owner)
  budget = budget - 1
end

-- The clients whose grants have lapsed, by waiters: read once in a call.
local lapsed = {}

-- Whether the client of a waiter hangs: its last grant has lapsed, and this waiter has given no heartbeat since.
local function hangs(waiters, client, ends)
  local clients = lapsed[waiters] or redis.call('HGET', waiters, '!') or ''
  lapsed[waiters] = clients
  if clients == '' then return false end
  local _, at = string.find(clients, string.sub(client, -32) .. ':', 1, true)
  return at and tonumber(ends) - keep < tonumber(string.match(clients, '^%d+', at + 1))
end

-- The fields of a waiter; none if it has given no heartbeat in time.
local function waiter_of(waiters, owner)
  local text = redis.call('HGET', waiters, owner) or ''
  local ends, mode, client, ticket = string.match(text, '^(%d+):(-?%d+):(.*):(%d+)$')
  local left = ends and tonumber(ends) - now
  -- No place is kept for longer than this: the clock was set back.
  if not left or left <= 0 or left > 60000000 or hangs(waiters, client, ends) then return nil end
  return {mode = mode, client = client, ticket = ticket, silent = keep - left}
end

-- There are more lapsed places than one call removes: who is first is not known yet.
local UNKNOWN = {}

-- The first waiter in the queue that has given a heartbeat in time, and its fields. Those before it lose their places.
local function first_of(queue, waiters)
  while true do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then return nil end
    local waiter = waiter_of(waiters, owner)
    if waiter then return owner, waiter end
    if budget <= 0 then return owner, UNKNOWN end
    drop(queue, waiters, owner)
  end
end

-- Takes or keeps a place, and says whether it is the first, 1 or 0, and where a new place is. `waiter` is
-- MODE:CLIENT:TICKET. One that has lost its place returns to it: it says where it was, '' if it had none.
local function keep_place(queue, waiters, owner, waiter, form, place)
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
    place = tonumber(place)
    if not place or place > now then
      place = now
      if tail and tonumber(tail) >= now then place = tonumber(tail) + 1 end
    end
    redis.call('ZADD', queue, 'NX', string.format('%.0f', place), owner)
  end
  redis.call('PEXPIRE', queue, 60000)
  redis.call('PEXPIRE', waiters, 60000)
  return redis.call('ZRANK', queue, owner) == 0 and 1 or 0, new > 0 and place or nil
end

-- The lock is free. If there is still a note of the last grant, the grant was not released but has lapsed, so its client
-- probably hangs: waiters of that client that have given no heartbeat since lose their places, see `hangs`.
local function note_lapsed(waiters)
  local ends, gone = string.match(redis.call('HGET', waiters, '=') or '', '^=(%d+):(.*)$')
  if not ends then return end
  if tonumber(ends) > now then
    redis.call('HDEL', waiters, '=')
    return
  end
  local since = tonumber(ends) - keep / 2
  local clients = string.sub(gone, -32) .. ':' .. string.format('%.0f', since) .. ';'
  -- Those from longer ago concern nobody any more: places of that time have lapsed.
  for client, other in string.gmatch(redis.call('HGET', waiters, '!') or '', '([^;]*):(%d+);') do
    if tonumber(other) + keep > now and client ~= string.sub(gone, -32) then clients = clients .. client .. ':' .. other .. ';' end
  end
  -- In this order: a hash that is empty for a moment loses its expiry.
  redis.call('HSET', waiters, '!', clients)
  redis.call('HDEL', waiters, '=')
  lapsed[waiters] = clients
end
