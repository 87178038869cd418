-- Redlock, phase 1 at one node: takes locks that are free here, and raises their token counters.
--
-- KEYS  for each claim: its token counter, the lock, its queue, the seats of those in the queue
-- ARGV  1: how long a seat is kept, in microseconds; then for each claim: owner, ttl in milliseconds, label, floor of
--       the token, round, seat ('CLIENT:TICKET'; '' to leave no trace if refused)
-- Answer for each claim, in order:
--       {1, vote}                the lock is the owner's; its claim raised the counter to exactly this number
--       {0, left, first, foreign}  busy: as in take.lua
--       {2, text}                this claim failed
--
-- The queue says whom a release wakes first. It keeps nobody from trying: nodes can disagree about the order.

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

-- The usual case: one claim for a free lock. What is below costs more.
if #KEYS == 4 and ARGV[7] == '' and redis.call('EXISTS', KEYS[2]) == 0 then
  local token = ARGV[5]
  if tonumber(token) > now + 60000000 then token = stamp end
  local before = redis.call('GETSET', KEYS[1], token)
  if before and tonumber(before) >= tonumber(token) then
    token = string.format('%.0f', tonumber(before) + 1)
    redis.call('SET', KEYS[1], token)
  end
  redis.call('SET', KEYS[2], ARGV[2] .. ':' .. token .. ':' .. stamp .. ':' .. ARGV[6] .. ':' .. ARGV[4], 'NX',
    'PX', ARGV[3])
  return {{1, token}}
end

-- A floor from a clock that is far ahead would use the numbers up for everybody.
local highest_floor = now + 60000000

local function vote(counter, lock, queue, seats, owner, ttl, label, floor, round, seat)
  local value = redis.call('GET', lock)
  if value then
    if string.sub(value, 1, 32) == owner then
      -- Asked again after a lost answer, or in the next round while the last one is still being given back. The lease
      -- counts from this request, as the asker's belief does; the round keeps the late release of another one off.
      local token, rest = string.match(value, '^%x+:(%d+)(:%d+:)')
      redis.call('SET', lock, owner .. ':' .. token .. rest .. round .. ':' .. label, 'PX', ttl)
      return {1, token}
    end
    local first = 0
    if seat ~= '' then
      local life = string.format('%.0f', now + tonumber(ARGV[1]))
      if redis.call('HSET', seats, owner, life .. ':' .. seat) == 1 then
        redis.call('ZADD', queue, stamp, owner)
      end
      redis.call('PEXPIRE', queue, 60000)
      redis.call('PEXPIRE', seats, 60000)
      if redis.call('ZRANK', queue, owner) == 0 then first = 1 end
    end
    local foreign = string.find(value, '^%x+:%d+:%d+:') and 0 or 1
    return {0, redis.call('PTTL', lock), first, foreign}
  end
  local raised = tonumber(redis.call('GET', counter) or 0) + 1
  floor = math.min(tonumber(floor), highest_floor)
  if raised < floor then raised = floor end
  local token = string.format('%.0f', raised)
  -- The counter first: what fails after it leaves a number unused, and no lock without its number.
  redis.call('SET', counter, token)
  redis.call('SET', lock, owner .. ':' .. token .. ':' .. stamp .. ':' .. round .. ':' .. label, 'NX', 'PX', ttl)
  if seat ~= '' then
    redis.call('ZREM', queue, owner)
    redis.call('HDEL', seats, owner)
  end
  return {1, token}
end

-- Redis names the line of an error only outside of pcall. Level 4 is the line that called Redis.
local function locate(err)
  local _, line = pcall(error, '', 4)
  return (type(err) == 'table' and err.err or tostring(err)) .. ' on @' .. line
end

local answers = {}
for claim = 1, #KEYS / 4 do
  local k, a = 4 * claim - 3, 6 * claim - 4
  local done, answer = xpcall(function()
    return vote(KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3],
      ARGV[a + 4], ARGV[a + 5])
  end, locate)
  answers[claim] = done and answer or {2, answer}
end
return answers
