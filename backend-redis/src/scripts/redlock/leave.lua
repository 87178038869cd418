-- Gives places in queues up, and nothing else.
--
-- KEYS  for each claim: the queue, the seats of those in it
-- ARGV  for each claim: owner
-- Answer for each claim, in order: 1 if it had a place

-- include queue.lua

local answers = {}
for claim, owner in ipairs(ARGV) do
  answers[claim] = leave(KEYS[2 * claim - 1], KEYS[2 * claim], owner)
end
return answers
