-- Grants to waiters, in their order. ARGV 2: the caller's channel, '' if its own waiters are to be notified by messages, too;
-- ARGV 3: 'exact' if the count of listeners is to be trusted (not in a cluster).

-- The most waiters that one call grants to.
local MOST = 100

-- Whether one more may join the members in this mode.
local function has_room(members, mode)
  if mode == '-1' then return true end
  local last = mode - 1
  return not redis.call('ZRANGE', members, last, last)[1]
end

-- Notifies a waiter. Returns 1, or 0 if nobody listens. Waiters of the caller's client are put into `notifications` instead.
local function notify(waiter, text, notifications)
  if waiter.client == ARGV[2] then
    notifications[#notifications + 1] = text
    return 1
  end
  local received = redis.call('PUBLISH', waiter.client, text)
  return (received > 0 or ARGV[3] ~= 'exact') and 1 or 0
end

-- Nobody listens on the channel of a client: its waiters keep their places only if they give a heartbeat within 2 s.
-- Waiters that are alive do so every 1.3 s. The count misses a listener behind some proxies, or while it connects.
local function shorten_places(queue, waiters, client)
  for _, owner in ipairs(redis.call('ZRANGE', queue, 0, 999)) do
    local ends, rest, theirs = string.match(redis.call('HGET', waiters, owner) or '', '^(%d+)(:%-?%d+:(.*):%d+)$')
    if theirs == client then
      redis.call('HSET', waiters, owner, string.format('%.0f', math.min(tonumber(ends), now + 2000000)) .. rest)
    end
  end
end

-- The lock is free (`mode` is nil), or a group holds it that others can join. The waiters at the head of the queue that fit
-- are granted the lock, under a provisional lease, and notified. A waiter on whose channel nobody listens is not granted
-- anything: it keeps its turn for 2 s unless it asks. Returns the notifications for waiters of the caller's client.
local function grant_next(counter, lock, queue, waiters, members, details, mode)
  local notifications, joined = {}, false
  for turn = 0, MOST do
    local owner, waiter = first_of(queue, waiters)
    if not owner or (mode and (waiter.mode ~= mode or not has_room(members, mode))) then break end
    if turn == MOST then
      -- This one asks, and its claim grants to further waiters.
      notify(waiter, waiter.ticket, notifications)
      break
    end
    local tokens, lease, sign, label =
      string.match(redis.call('HGET', waiters, '+' .. owner) or '', '^g(%d+):(%d+):(%d+):(.*)$')
    local received
    if not tokens then
      received = notify(waiter, waiter.ticket, notifications)
      if received == 1 then break end
    else
      local ends = string.format('%.0f', now + lease * 1000)
      local token = take_tokens(counter, tonumber(tokens))
      received = notify(waiter, waiter.ticket .. ':' .. token .. ':' .. ends .. ':' .. lease .. ':' .. sign, notifications)
      if received == 1 then
        leave(queue, waiters, owner)
        local record = token .. ':' .. stamp .. ':0:' .. label
        if waiter.mode == '0' then
          redis.call('SET', lock, owner .. ':' .. record, 'PX', lease)
          -- See waiters.lua: the note of the last grant, which only other waiters need.
          if redis.call('EXISTS', waiters) == 1 then redis.call('HSET', waiters, '=', '=' .. ends .. ':' .. waiter.client) end
          return notifications
        end
        if not mode then
          mode = waiter.mode
          begin_group(lock, members, details, mode, lease)
        end
        redis.call('HSET', details, owner, record)
        set_lease(members, owner, lease * 1000)
        joined = true
      end
    end
    if received == 0 then
      shorten_places(queue, waiters, waiter.client)
      break
    end
  end
  if joined then span(lock, members, details) end
  if redis.call('EXISTS', queue) == 1 then
    redis.call('HDEL', waiters, '=')
  else
    -- What is left are fields of waiters that have no place.
    redis.call('DEL', waiters)
  end
  return notifications
end
