-- Takes exclusive locks that are free, or joins their queues. Several claims travel together.
--
-- KEYS  1: the token counter; then for each claim: the lock, its queue, the seats of those in the queue
-- ARGV  1: seconds after which an unused token counter goes, 0 for never; 2: how long a seat is kept, in microseconds;
--       then for each claim: owner, ttl in milliseconds, label, seat ('CLIENT:TICKET'; '' to leave no trace if refused),
--       how many tokens
-- Answer for each claim, in order:
--       {1, token}                       granted, now or by an earlier call of the same owner; the last of its tokens
--       {0, left, first, foreign}        busy: milliseconds left of the holder's lease (-1 endless, -2 nothing to wait
--                                        for), whether the claim stands first, whether the holder is another program
--       {2, text}                        this claim failed, and has changed nothing that matters
--       {3, mode}                        the lock is in use in this mode, which is of another kind
--
-- The lock's value is OWNER:TOKEN:SINCE:ROUND:LABEL; the round is Redlock's. While a group holds it, the value is another,
-- and lasts as long as the group does: so this script need not look at its members.
--
-- Idempotent for the owner: a repeated call finds what the first one did.

local counter, lock = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

-- The usual case: one claim, nobody holds the lock and nobody waits. Below are the same steps for all cases; a script that
-- comes to them costs a fifth of a round trip more.
if #KEYS == 4 and ARGV[7] == '1' and redis.call('EXISTS', lock, KEYS[3]) == 0 then
  local before = redis.call('GETSET', counter, stamp)
  local token = stamp
  -- Of one length, as they are until the year 2286, texts compare like numbers, at less cost.
  if before and (#before ~= #stamp or before >= stamp) and tonumber(before) >= tonumber(stamp) then
    token = string.format('%.0f', tonumber(before) + 1)
    redis.call('SET', counter, token)
  end
  if ARGV[1] ~= '0' then redis.call('EXPIRE', counter, ARGV[1]) end
  redis.call('SET', lock, ARGV[3] .. ':' .. token .. ':' .. stamp .. ':0:' .. ARGV[5], 'NX', 'PX', ARGV[4])
  return {{1, token}}
end

local now = tonumber(stamp)
local keep = tonumber(ARGV[2])
local wanted = 0
for a = 7, #ARGV, 5 do wanted = wanted + ARGV[a] end

-- include tokens.lua
-- include queue.lua
-- include locate.lua

local function grant(lock, owner, ttl, label, tokens)
  local token = take_tokens(tokens)
  redis.call('SET', lock, owner .. ':' .. token .. ':' .. stamp .. ':0:' .. label, 'NX', 'PX', ttl)
  return {1, token}
end

local function take(lock, queue, seats, owner, ttl, label, seat, tokens)
  -- The usual case: nobody holds the lock and nobody waits.
  if redis.call('EXISTS', lock, queue) == 0 then return grant(lock, owner, ttl, label, tokens) end
  local left, foreign = -2, 0
  local value = redis.call('GET', lock)
  if value then
    if string.sub(value, 1, 32) == owner then
      -- Asked again after a lost answer. The lease counts from this request, as the asker's belief does.
      redis.call('PEXPIRE', lock, ttl)
      return {1, string.match(value, '^%x+:(%d+):')}
    end
    local mode = string.match(value, '^\31group:(-?%d+)$')
    if mode and mode ~= '-1' then return {3, tonumber(mode)} end
    if not mode and not string.find(value, '^%x+:%d+:%d+:') then foreign = 1 end
    left = redis.call('PTTL', lock)
  else
    local first, first_seat = first_of(queue, seats)
    if not first or first == owner then
      local answer = grant(lock, owner, ttl, label, tokens)
      if first then leave(queue, seats, owner) end
      return answer
    end
    if tonumber(first_seat.mode) > 0 then return {3, tonumber(first_seat.mode)} end
    -- Free, and not ours to take. Whoever is first may have missed its call.
    redis.call('PUBLISH', first_seat.client, first_seat.ticket)
  end
  return {0, left, seat ~= '' and sit(queue, seats, owner, '0:' .. seat, keep) or 0, foreign}
end

local answers = {}
for claim = 1, (#ARGV - 2) / 5 do
  local k, a = 3 * claim - 1, 5 * claim - 2
  local done, answer = xpcall(function()
    return take(KEYS[k], KEYS[k + 1], KEYS[k + 2], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3],
      tonumber(ARGV[a + 4]))
  end, locate)
  answers[claim] = done and answer or {2, answer}
end
return answers
