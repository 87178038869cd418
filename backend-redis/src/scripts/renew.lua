-- Extends leases: compare and extend, for many locks in one call.
--
-- KEYS  the locks
-- ARGV  for each lock: owner, ttl in milliseconds
-- Answer for each lock, in order: 1 extended, 0 not the owner's any more

local answers = {}
for i, lock in ipairs(KEYS) do
  -- What is of another kind is another program's: it must not keep the other leases from being extended.
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' and value.err and not string.find(value.err, 'WRONGTYPE', 1, true) then
    -- Asked again without protection, the error names its line.
    redis.call('GET', lock)
  end
  if type(value) == 'string' and string.sub(value, 1, 32) == ARGV[2 * i - 1] then
    answers[i] = redis.call('PEXPIRE', lock, ARGV[2 * i])
  else
    answers[i] = 0
  end
end
return answers
