-- Redlock, phase 1 of exclusive claims at one node: takes locks that are free here, and raises their token counters. A
-- refused claim leaves no record. The usual case, with as few commands as possible. One call serves several claims.
--
-- KEYS  for each claim: the lock, its token counter
-- ARGV  for each claim: owner, ttl in milliseconds, label, floor of the token, round, how many tokens
-- Answer, of one claim as it is, of several in a list, in order:
--       vote     the lock is the owner's, by this round; it raised the counter to exactly this number, by as many as it
--                wants at least
--       1        held by another
--       0        nothing was done: claim.lua of Redlock must decide, since a group or the owner itself holds the lock
--
-- The queue only decides which waiter a release notifies first. It refuses nobody here, since nodes can disagree about the
-- order.

-- include clock.lua
-- include raise.lua
-- include vote.lua

local answers = {}
for claim = 1, #KEYS / 2 do
  local lock, a = KEYS[2 * claim - 1], 6 * claim - 5
  local owner, value = ARGV[a], redis.pcall('GET', lock)
  if not value then
    local token = vote(KEYS[2 * claim], ARGV[a + 3], ARGV[a + 5])
    local record = owner .. ':' .. token .. ':' .. stamp .. ':' .. ARGV[a + 4] .. ':' .. ARGV[a + 2]
    redis.call('SET', lock, record, 'PX', ARGV[a + 1])
    answers[claim] = token
  elseif type(value) == 'string' and string.byte(value) ~= 31 and string.sub(value, 1, 32) ~= owner then
    answers[claim] = 1
  else
    answers[claim] = 0
  end
end
return KEYS[3] and answers or answers[1]
