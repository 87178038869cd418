-- Redlock, phase 2 at one node: raises the counter to the claim's token.
--
-- KEYS  for each claim: its token counter, the lock
-- ARGV  for each claim: owner, token
-- Answer for each claim, in order: 1 if the counter was strictly lower and the lock is still the owner's, so that it
--       was raised to the token just now; otherwise 0

local answers = {}
for claim = 1, #KEYS / 2 do
  local counter, lock = KEYS[2 * claim - 1], KEYS[2 * claim]
  local owner, token = ARGV[2 * claim - 1], ARGV[2 * claim]
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' and value.err and not string.find(value.err, 'WRONGTYPE', 1, true) then
    -- Asked again without protection, the error names its line.
    redis.call('GET', lock)
  end
  answers[claim] = 0
  if type(value) == 'string' and string.sub(value, 1, 32) == owner
    and tonumber(redis.call('GET', counter) or 0) < tonumber(token) then
    redis.call('SET', counter, token)
    -- For those who look. A repeated call then answers 0, which is safe.
    local left = redis.call('PTTL', lock)
    local rest = string.match(value, '^%x+:%d+(:.*)$')
    if rest and left > 0 then redis.call('SET', lock, owner .. ':' .. token .. rest, 'PX', left) end
    answers[claim] = 1
  end
end
return answers
