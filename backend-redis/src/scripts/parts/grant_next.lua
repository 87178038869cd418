-- Grants to waiters, in their order. ARGV 2: the caller's channel, '' if its own waiters are to be notified by messages, too;
-- ARGV 3: 'exact' if the count of listeners is to be trusted (not in a cluster); 'closed' if nothing may be granted, as in the
-- grace period of a server that may have forgotten grants: the first waiter is notified, and asks.

-- Whether one more may join the members in this mode.
local function has_room(members, mode)
  if mode == '-1' then return true end
  local last = mode - 1
  return not redis.call('ZRANGE', members, last, last)[1]
end

-- Notifies a waiter. Returns whether its client listens. Waiters of the caller's client are put into `notifications` instead.
local gone = {}
local function notify(waiter, text, notifications)
  if waiter.client == ARGV[2] then
    notifications[#notifications + 1] = text
    return true
  end
  if gone[waiter.client] then return false end
  local received = redis.call('PUBLISH', waiter.client, text)
  if received == 0 and ARGV[3] == 'exact' then gone[waiter.client] = true end
  return not gone[waiter.client]
end

-- The call has looked at as many waiters as it may. The first waiter, or else the last one, whose client is the most likely to
-- live, asks now, and its claim goes on. Once in a call for each queue.
local asked = {}
local function go_on(queue, waiters, notifications)
  if asked[queue] then return end
  asked[queue] = true
  for _, place in ipairs({0, -1}) do
    local owner = redis.call('ZRANGE', queue, place, place)[1]
    local waiter = owner and waiter_of(waiters, owner)
    if waiter and notify(waiter, waiter.ticket, notifications) then break end
  end
end

-- The lock is free (`mode` is nil), or a group holds it that others can join. The waiters at the head of the queue that fit
-- are granted the lock, under a provisional lease, and notified. A waiter on whose channel nobody listens loses its place,
-- to which it returns with its next request. One that polls keeps its turn for half as long as a place is kept. Returns the
-- notifications for waiters of the caller's client.
local function grant_next(counter, lock, queue, waiters, members, details, mode)
  local notifications, joined = {}, false
  while true do
    if budget <= 0 then
      go_on(queue, waiters, notifications)
      break
    end
    local owner, waiter = first_of(queue, waiters)
    if waiter ~= UNKNOWN then
      if not owner or (mode and (waiter.mode ~= mode or not has_room(members, mode))) then break end
      local form = redis.call('HGET', waiters, '+' .. owner) or ''
      local tokens, lease, sign, label = string.match(form, '^g(%d+):(%d+):(%d+):(.*)$')
      local token = tokens and ARGV[3] ~= 'closed' and not gone[waiter.client] and take_tokens(counter, tonumber(tokens), true)
      local text, ends = waiter.ticket, nil
      if token then
        ends = string.format('%.0f', now + lease * 1000)
        text = text .. ':' .. token .. ':' .. ends .. ':' .. lease .. '000:' .. sign
      end
      if not notify(waiter, text, notifications) then
        if string.byte(form) == 112 and waiter.silent < keep / 2 then break end
        drop(queue, waiters, owner)
      elseif not token then
        break
      else
        leave(queue, waiters, owner)
        local record = token .. ':' .. stamp .. ':' .. tokens .. ':' .. label
        if waiter.mode == '0' then
          redis.call('SET', lock, owner .. ':' .. record, 'PX', lease)
          -- See waiters.lua: the note of the last grant, which only other waiters need.
          if redis.call('EXISTS', queue) == 1 then
            redis.call('HSET', waiters, '=', '=' .. ends .. ':' .. waiter.client)
          else
            redis.call('DEL', waiters)
          end
          return notifications
        end
        if not mode then
          mode = waiter.mode
          begin_group(lock, members, details, mode, lease)
        end
        redis.call('HSET', details, owner, record)
        set_lease(members, owner, lease * 1000)
        joined = true
        budget = budget - 1
      end
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
