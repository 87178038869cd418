-- Releases exclusive locks without waiters: the usual case, with as few commands as possible. One call serves several
-- claims. Frees a lock only for its own owner.
--
-- KEYS  for each claim: the lock, its waiters
-- ARGV  for each claim: owner
-- Answer, of one claim as it is, of several in a list, in order: 2 it held the lock, which is free now; 1 it did not hold
--       it; 0 nothing was done: release_claim.lua must decide, since somebody waits, or a group holds the lock

local call, keys = redis.call, KEYS

-- One claim that holds its lock. Below are the same steps for all cases.
if not keys[3] then
  local lock = keys[1]
  local value = call('GET', lock)
  if value and string.sub(value, 1, 32) == ARGV[1] and call('EXISTS', keys[2]) == 0 then
    call('DEL', lock)
    return 2
  end
end

local answers = {}
for claim, owner in ipairs(ARGV) do
  local lock, waiters = keys[2 * claim - 1], keys[2 * claim]
  local value = redis.pcall('GET', lock)
  if call('EXISTS', waiters) == 1 or (value and (type(value) == 'table' or string.byte(value) == 31)) then
    answers[claim] = 0
  elseif value and string.sub(value, 1, 32) == owner then
    call('DEL', lock)
    answers[claim] = 2
  else
    answers[claim] = 1
  end
end
return keys[3] and answers or answers[1]
