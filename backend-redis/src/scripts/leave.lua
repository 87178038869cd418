-- Gives places in queues up, and nothing else.
--
-- KEYS  for each claim: the queue, the seats of those in it
-- ARGV  for each claim: owner
-- Answer for each claim, in order: 1 if it had a place

local answers = {}
for claim, owner in ipairs(ARGV) do
  redis.call('HDEL', KEYS[2 * claim], owner)
  answers[claim] = redis.call('ZREM', KEYS[2 * claim - 1], owner)
end
return answers
