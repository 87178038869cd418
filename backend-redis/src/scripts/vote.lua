-- Redlock, phase 1 of exclusive claims at one node: takes locks that are free here, and raises their token counters.
--
-- KEYS  for each claim: its token counter, the lock, its queue, the seats of those in the queue
-- ARGV  1: how long a seat is kept, in microseconds; then for each claim: owner, ttl in milliseconds, label, floor of
--       the token, round, seat ('CLIENT:TICKET'; '' to leave no trace if refused), how many tokens
-- Answer for each claim, in order:
--       {1, vote}                the lock is the owner's; its claim raised the counter to exactly this number, by as
--                                many as it wants at least
--       {0, left, first, foreign}, {2, text}, {3, mode}  as in take.lua
--
-- The queue says whom a release wakes first. It keeps nobody from trying but new readers: nodes can disagree about the
-- order.

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

-- The usual case: one claim for a free lock. What is below costs more.
if #KEYS == 4 and ARGV[7] == '' and redis.call('EXISTS', KEYS[2]) == 0 then
  local counter, lock, token = KEYS[1], KEYS[2], ARGV[5]
  if tonumber(token) > now + 60000000 then token = stamp end
  local lowest = (redis.call('GETSET', counter, token) or 0) + ARGV[8]
  if lowest > tonumber(token) then
    token = string.format('%.0f', lowest)
    redis.call('SET', counter, token)
  end
  redis.call('SET', lock, ARGV[2] .. ':' .. token .. ':' .. stamp .. ':' .. ARGV[6] .. ':' .. ARGV[4], 'NX',
    'PX', ARGV[3])
  return {{1, token}}
end

-- include queue.lua
-- include raise.lua
-- include locate.lua

local function vote(counter, lock, queue, seats, owner, ttl, label, floor, round, seat, many)
  local value = redis.call('GET', lock)
  if value then
    if string.sub(value, 1, 32) == owner then
      -- Asked again after a lost answer, or in the next round while the last one is still being given back. The lease
      -- counts from this request, as the asker's belief does; the round keeps the late release of another one off, and a
      -- request that comes late does not bring an earlier one back.
      local token, rest, last = string.match(value, '^%x+:(%d+)(:%d+:)(%d+):')
      if tonumber(last) > tonumber(round) then round = last end
      redis.call('SET', lock, owner .. ':' .. token .. rest .. round .. ':' .. label, 'PX', ttl)
      return {1, token}
    end
    local mode = string.match(value, '^\31group:(-?%d+)$')
    if mode and mode ~= '-1' then return {3, tonumber(mode)} end
    local foreign = not mode and not string.find(value, '^%x+:%d+:%d+:') and 1 or 0
    local left = redis.call('PTTL', lock)
    return {0, left, seat ~= '' and sit(queue, seats, owner, '0:' .. seat, tonumber(ARGV[1])) or 0, foreign}
  end
  local token = raise(counter, floor, many)
  redis.call('SET', lock, owner .. ':' .. token .. ':' .. stamp .. ':' .. round .. ':' .. label, 'NX', 'PX', ttl)
  if seat ~= '' then leave(queue, seats, owner) end
  return {1, token}
end

local answers = {}
for claim = 1, #KEYS / 4 do
  local k, a = 4 * claim - 3, 7 * claim - 5
  local done, answer = xpcall(function()
    return vote(KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3],
      ARGV[a + 4], ARGV[a + 5], ARGV[a + 6])
  end, locate)
  answers[claim] = done and answer or {2, answer}
end
return answers
