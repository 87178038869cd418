-- Redlock: reads a node's token counters, all at one moment.
--
-- KEYS  the counters
-- Answer for each counter, in order: its value as text, '0' if there is none

local answers = {}
for i, counter in ipairs(KEYS) do
  answers[i] = redis.call('GET', counter) or '0'
end
return answers
