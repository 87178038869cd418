-- Grants to those who wait, in their order. ARGV 2: the caller's channel, '' if its own waiters are to be told by messages,
-- too; ARGV 3: 'exact' if the count of listeners is to be trusted (not in a cluster).

-- The most who come in at a time.
local MOST = 100

-- Whether one more may join the members in this mode.
local function has_room(members, mode)
  if mode == '-1' then return true end
  local last = mode - 1
  return not redis.call('ZRANGE', members, last, last)[1]
end

-- Tells a waiter: 1 heard, 0 nobody listens. Those of the caller's own process are noted in `told` instead.
local function tell(waiter, text, told)
  if waiter.client == ARGV[2] then
    told[#told + 1] = text
    return 1
  end
  local heard = redis.call('PUBLISH', waiter.client, text)
  return (heard > 0 or ARGV[3] ~= 'exact') and 1 or 0
end

-- Nobody listens on the channel of a client. Its waiters keep their places if they give a sign of life soon. Those that live do
-- so every 1.3 s: a proxy, or a connection that is just being made, can keep them from being counted.
local function hurry(queue, waiters, client)
  for _, owner in ipairs(redis.call('ZRANGE', queue, 0, 999)) do
    local ends, rest, theirs = string.match(redis.call('HGET', waiters, owner) or '', '^(%d+)(:%-?%d+:(.*):%d+)$')
    if theirs == client then
      redis.call('HSET', waiters, owner, string.format('%.0f', math.min(tonumber(ends), now + 2000000)) .. rest)
    end
  end
end

-- The lock is free (`mode` is nil), or a group holds it that others can join. The waiters at the head of the queue that can
-- have it are granted it, under a provisional lease, and notified. A waiter on whose channel nobody listens is not granted
-- anything: it has its turn, and loses it soon unless it asks. Returns the notifications for waiters of the caller's process.
local function hand_on(counter, lock, queue, waiters, members, details, mode)
  local told, joined = {}, false
  for turn = 0, MOST do
    local owner, waiter = first_of(queue, waiters)
    if not owner or (mode and (waiter.mode ~= mode or not has_room(members, mode))) then break end
    if turn == MOST then
      -- It asks, and lets others in.
      tell(waiter, waiter.ticket, told)
      break
    end
    local tokens, lease, sign, label =
      string.match(redis.call('HGET', waiters, '+' .. owner) or '', '^g(%d+):(%d+):(%d+):(.*)$')
    local heard
    if not tokens then
      heard = tell(waiter, waiter.ticket, told)
      if heard == 1 then break end
    else
      local ends = string.format('%.0f', now + lease * 1000)
      local token = take_tokens(counter, tonumber(tokens))
      heard = tell(waiter, waiter.ticket .. ':' .. token .. ':' .. ends .. ':' .. lease .. ':' .. sign, told)
      if heard == 1 then
        leave(queue, waiters, owner)
        local record = token .. ':' .. stamp .. ':0:' .. label
        if waiter.mode == '0' then
          redis.call('SET', lock, owner .. ':' .. record, 'PX', lease)
          -- It matters to others who wait, and goes with them.
          if redis.call('EXISTS', waiters) == 1 then redis.call('HSET', waiters, '=', '=' .. ends .. ':' .. waiter.client) end
          return told
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
    if heard == 0 then
      hurry(queue, waiters, waiter.client)
      break
    end
  end
  if joined then span(lock, members, details) end
  if redis.call('EXISTS', queue) == 1 then
    redis.call('HDEL', waiters, '=')
  else
    -- What is left of the waiters belongs to nobody.
    redis.call('DEL', waiters)
  end
  return told
end
