-- Gives claims up: what they hold, and their places in queues. Frees a lock only for its own owner.
--
-- KEYS  for each claim: the lock, its queue, the seats of those in the queue
-- ARGV  1: the caller's wake-up channel, 2: 'exact' if the count of listeners is to be trusted (not in a cluster);
--       then for each claim: owner, '1' if it may stand in the queue, and the round to give back, '' for any
-- Answer for each claim, in order:
--       {released, ticket}     released: 1 if it held the lock or a place, 0 if it had neither; ticket: of the waiter of
--                              the caller's own process to wake, '' if there is none
--       {2, text}              this claim failed, and has changed nothing
--
-- One waiter is woken, the first in the queue. One of another process is woken by a message to that process.

-- The usual case: one claim, held, and nobody waits. It spares the clock and what is below.
if #KEYS == 3 then
  local value = redis.call('GET', KEYS[1])
  if value and ARGV[4] == '0' and ARGV[5] == '' and string.sub(value, 1, 32) == ARGV[3] then
    if redis.call('EXISTS', KEYS[2]) == 0 then
      redis.call('DEL', KEYS[1])
      return {{1, ''}}
    end
  end
end

local time = redis.call('TIME')
local now = tonumber(time[1] .. string.sub('00000' .. time[2], -6))

-- Wakes the first in the queue. One that nobody listens for loses its place soon, unless it comes back.
local function wake_first(queue, seats)
  while true do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then return '' end
    local seat = redis.call('HGET', seats, owner)
    local until_when, client, ticket = string.match(seat or '', '^(%d+):(.*):(%d+)$')
    local left = until_when and tonumber(until_when) - now
    -- One that lasts longer than any can is from before the clock was set back.
    if left and left > 0 and left <= 60000000 then
      if client == ARGV[1] then return ticket end
      if redis.call('PUBLISH', client, ticket) == 0 and ARGV[2] == 'exact' then
        local soon = math.min(tonumber(until_when), now + 500000)
        redis.call('HSET', seats, owner, string.format('%.0f', soon) .. ':' .. client .. ':' .. ticket)
      end
      return ''
    end
    redis.call('ZREM', queue, owner)
    redis.call('HDEL', seats, owner)
  end
end

local function release(lock, queue, seats, owner, queued, round)
  local value = redis.call('GET', lock)
  local released = 0
  if value and string.sub(value, 1, 32) == owner
    and (round == '' or string.match(value, '^%x+:%d+:%d+:(%d+):') == round) then
    redis.call('DEL', lock)
    value = nil
    released = 1
  end
  if queued == '1' then
    redis.call('HDEL', seats, owner)
    if redis.call('ZREM', queue, owner) == 1 then released = 1 end
  end
  if value then return {released, ''} end
  return {released, wake_first(queue, seats)}
end

-- Redis names the line of an error only outside of pcall. Level 4 is the line that called Redis.
local function locate(err)
  local _, line = pcall(error, '', 4)
  return (type(err) == 'table' and err.err or tostring(err)) .. ' on @' .. line
end

local answers = {}
for claim = 1, (#ARGV - 2) / 3 do
  local k, a = 3 * claim - 2, 3 * claim
  local done, answer = xpcall(function()
    return release(KEYS[k], KEYS[k + 1], KEYS[k + 2], ARGV[a], ARGV[a + 1], ARGV[a + 2])
  end, locate)
  answers[claim] = done and answer or {2, answer}
end
return answers
