-- Redlock: gives exclusive claims up at one node, what they hold and their places in the queue.
--
-- KEYS  for each claim: the lock, its queue, the seats of those in the queue
-- ARGV  1: the caller's wake-up channel, 2: 'exact', as the count of listeners is to be trusted; then for each claim: owner,
--       '1' if it may stand in the queue, and the round whose vote is given back, '' for all rounds, when the claim is over
-- Answer for each claim, in order: {released, ticket} or {2, text}, as in release.lua
--
-- One waiter is woken, the first in the queue. One of another process is woken by a message to that process.

-- include record.lua

-- The usual case: one claim, held, and nobody waits. It spares the clock and what is below.
if #KEYS == 3 and ARGV[4] == '0' then
  local value = redis.call('GET', KEYS[1])
  if value and is_of(value, ARGV[3], ARGV[5]) and redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[1])
    return {{1, ''}}
  end
end

-- include clock.lua
-- include queue.lua
-- include first.lua
-- include wake.lua
-- include locate.lua

local function release(lock, queue, seats, owner, queued, round)
  local value = redis.call('GET', lock)
  local released = 0
  if value and is_of(value, owner, round) then
    redis.call('DEL', lock)
    value = nil
    released = 1
  end
  if queued == '1' and leave(queue, seats, owner) == 1 then released = 1 end
  -- A writer that gives up may have stood before readers who can join those who hold the lock.
  if value and value ~= '\31group:-1' then return {released, ''} end
  return {released, wake_first(queue, seats, value and '-1')}
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
