-- Takes locks that are free, or joins their queues. Several claims travel together.
--
-- KEYS  1: the token counter; then for each claim: the lock, its queue, the seats of those in the queue
-- ARGV  1: seconds after which an unused token counter goes, 0 for never; 2: how long a seat is kept, in microseconds;
--       then for each claim: owner, ttl in milliseconds, label, seat ('CLIENT:TICKET'; '' to leave no trace if refused)
-- Answer for each claim, in order:
--       {1, token}                       granted, now or by an earlier call of the same owner
--       {0, left, first, foreign}        busy: milliseconds left of the holder's lease (-1 endless, -2 free but not ours
--                                        to take), whether the claim stands first, whether the holder is another program
--       {2, text}                        this claim failed, and has changed nothing that matters
--
-- The queue is a sorted set of owners by arrival on this server's clock; a seat says who to wake and how long the place
-- is kept without a sign of life. The lock's value is OWNER:TOKEN:SINCE:ROUND:LABEL; the round is Redlock's.
--
-- Idempotent for the owner: a repeated call finds what the first one did.

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

-- The usual case: one claim, nobody holds the lock and nobody waits. Below are the same steps for all cases; a script that
-- comes to them costs a fifth of a round trip more.
if #KEYS == 4 and redis.call('EXISTS', KEYS[2], KEYS[3]) == 0 then
  local before = redis.call('GETSET', KEYS[1], stamp)
  local token = stamp
  -- Of one length, as they are until the year 2286, texts compare like numbers, at less cost.
  if before and (#before ~= #stamp or before >= stamp) and tonumber(before) >= tonumber(stamp) then
    token = string.format('%.0f', tonumber(before) + 1)
    redis.call('SET', KEYS[1], token)
  end
  if ARGV[1] ~= '0' then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
  redis.call('SET', KEYS[2], ARGV[3] .. ':' .. token .. ':' .. stamp .. ':0:' .. ARGV[5], 'NX', 'PX', ARGV[4])
  return {{1, token}}
end

local now = tonumber(stamp)
local keep = tonumber(ARGV[2])
local claims = (#ARGV - 2) / 4
local token

-- The next token: above all before it, and not below the clock, so that tokens rise over a flush or a lost counter.
-- One for each claim of the call is taken from the counter when the first is needed; numbers may stay unused.
local function next_token()
  if token then
    token = token + 1
    return string.format('%.0f', token)
  end
  local before = redis.call('GETSET', KEYS[1], stamp)
  token = now
  if before and tonumber(before) >= now then token = tonumber(before) + 1 end
  local reserved = token + claims - 1
  if reserved ~= now then redis.call('SET', KEYS[1], string.format('%.0f', reserved)) end
  if ARGV[1] ~= '0' then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
  return string.format('%.0f', token)
end

-- The first in the queue who still shows signs of life, and its seat.
local function first_of(queue, seats)
  while true do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then return nil end
    local seat = redis.call('HGET', seats, owner)
    local until_when, who = string.match(seat or '', '^(%d+):(.*:%d+)$')
    local left = until_when and tonumber(until_when) - now
    -- One that lasts longer than any can is from before the clock was set back.
    if left and left > 0 and left <= keep then return owner, who end
    redis.call('ZREM', queue, owner)
    redis.call('HDEL', seats, owner)
  end
end

local function wake(who)
  local client, ticket = string.match(who, '^(.*):(%d+)$')
  redis.call('PUBLISH', client, ticket)
end

local function grant(lock, owner, ttl, label)
  local token = next_token()
  redis.call('SET', lock, owner .. ':' .. token .. ':' .. stamp .. ':0:' .. label, 'NX', 'PX', ttl)
  return {1, token}
end

local function busy(queue, seats, owner, seat, left, foreign)
  local first = 0
  if seat ~= '' then
    local life = string.format('%.0f', now + keep)
    if redis.call('HSET', seats, owner, life .. ':' .. seat) == 1 then
      local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
      local place = now
      if tail and tonumber(tail) >= now then place = tonumber(tail) + 1 end
      redis.call('ZADD', queue, string.format('%.0f', place), owner)
    end
    redis.call('PEXPIRE', queue, 60000)
    redis.call('PEXPIRE', seats, 60000)
    if redis.call('ZRANK', queue, owner) == 0 then first = 1 end
  end
  return {0, left, first, foreign}
end

local function take(lock, queue, seats, owner, ttl, label, seat)
  -- The usual case: nobody holds the lock and nobody waits.
  if redis.call('EXISTS', lock, queue) == 0 then return grant(lock, owner, ttl, label) end
  local value = redis.call('GET', lock)
  if value then
    if string.sub(value, 1, 32) == owner then
      -- Asked again after a lost answer. The lease counts from this request, as the asker's belief does.
      redis.call('PEXPIRE', lock, ttl)
      return {1, string.match(value, '^%x+:(%d+):')}
    end
    local foreign = string.find(value, '^%x+:%d+:%d+:') and 0 or 1
    return busy(queue, seats, owner, seat, redis.call('PTTL', lock), foreign)
  end
  local first, who = first_of(queue, seats)
  if first and first ~= owner then
    -- Free, and not ours to take. Whoever is first may have missed its call.
    wake(who)
    return busy(queue, seats, owner, seat, -2, 0)
  end
  local answer = grant(lock, owner, ttl, label)
  if first then
    redis.call('ZREM', queue, owner)
    redis.call('HDEL', seats, owner)
  end
  return answer
end

-- Redis names the line of an error only outside of pcall. Level 4 is the line that called Redis.
local function locate(err)
  local _, line = pcall(error, '', 4)
  return (type(err) == 'table' and err.err or tostring(err)) .. ' on @' .. line
end

local answers = {}
for claim = 1, claims do
  local k, a = 3 * claim - 1, 4 * claim - 1
  local done, answer = xpcall(function()
    return take(KEYS[k], KEYS[k + 1], KEYS[k + 2], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
  end, locate)
  answers[claim] = done and answer or {2, answer}
end
return answers
