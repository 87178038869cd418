-- Redlock: sets the lock again at a node that has lost it, while its owner holds it at a majority of the others.
--
-- KEYS  for each lock: its token counter, the lock
-- ARGV  for each lock: owner, ttl in milliseconds, token, label
-- Answer for each lock, in order: 1 if it is the owner's now, 0 if another has it
--
-- The counter is raised to the token, too: nobody is to get a lower one from this node.

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local answers = {}
for lock = 1, #KEYS / 2 do
  local counter, key = KEYS[2 * lock - 1], KEYS[2 * lock]
  local a = 4 * lock - 3
  -- One of another kind must not keep the others from being set.
  local value = redis.pcall('GET', key)
  if type(value) == 'table' and value.err and not string.find(value.err, 'WRONGTYPE', 1, true) then
    -- Asked again without protection, the error names its line.
    redis.call('GET', key)
  end
  if not value then
    if tonumber(redis.call('GET', counter) or 0) < tonumber(ARGV[a + 2]) then
      redis.call('SET', counter, ARGV[a + 2])
    end
    redis.call('SET', key, ARGV[a] .. ':' .. ARGV[a + 2] .. ':' .. stamp .. ':0:' .. ARGV[a + 3], 'PX', ARGV[a + 1])
    answers[lock] = 1
  else
    answers[lock] = type(value) == 'string' and string.sub(value, 1, 32) == ARGV[a] and 1 or 0
  end
end
return answers
