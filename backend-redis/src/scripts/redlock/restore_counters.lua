-- Redlock: raises the token counters of a node that has lost them, and notes that this run of the server has its counters.
--
-- KEYS  1: the note; then the counters
-- ARGV  1: the note, which names the server's run; then for each counter the value that it must reach at least
-- Answer: how many were raised

local raised = 0
for i = 2, #KEYS do
  if tonumber(redis.call('GET', KEYS[i]) or 0) < tonumber(ARGV[i]) then
    redis.call('SET', KEYS[i], ARGV[i])
    raised = raised + 1
  end
end
-- A note of this run stays as it is: another client may know better by now whether the run keeps every change. Who may not ask
-- which run it is has no note.
local run = string.match(ARGV[1], '^[^:]*')
if run ~= '' and string.match(redis.call('GET', KEYS[1]) or '', '^[^:]*') ~= run then
  redis.call('SET', KEYS[1], ARGV[1])
end
return raised
