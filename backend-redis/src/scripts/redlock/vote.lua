-- Redlock, phase 1 of exclusive claims at one node: takes locks that are free here, and raises their token counters.
--
-- KEYS  for each claim: its token counter, the lock, its queue, the seats of those in the queue
-- ARGV  1: how long a seat is kept, in microseconds; then for each claim: owner, ttl in milliseconds, label, floor of
--       the token, round, seat ('CLIENT:TICKET'; '' to leave no trace if refused), how many tokens
-- Answer for each claim, in order:
--       {1, vote}                the lock is the owner's, by this round; it raised the counter to exactly this number, by
--                                as many as it wants at least
--       {0, left, first, foreign}, {2, text}, {3, mode}  as in take.lua
--
-- The queue says whom a release wakes first. It keeps nobody from trying but new readers: nodes can disagree about the
-- order.

-- include clock.lua
-- include raise.lua

-- The usual case: one claim for a free lock. What is below costs more.
if #KEYS == 4 and ARGV[7] == '' and redis.call('EXISTS', KEYS[2]) == 0 then
  local token = raise(KEYS[1], ARGV[5], tonumber(ARGV[8]))
  redis.call('SET', KEYS[2], ARGV[2] .. ':' .. token .. ':' .. stamp .. ':' .. ARGV[6] .. ':' .. ARGV[4], 'PX', ARGV[3])
  return {{1, token}}
end

-- include queue.lua
-- include locate.lua

local function vote(counter, lock, queue, seats, owner, ttl, label, floor, round, seat, many)
  local value = redis.call('GET', lock)
  local since = stamp
  if value then
    local its_owner, token, its_since, its_round = string.match(value, '^(%x+):(%d+):(%d+):(%d+):')
    if its_owner ~= owner then
      local mode = string.match(value, '^\31group:(-?%d+)$')
      if mode and mode ~= '-1' then return {3, tonumber(mode)} end
      local foreign = not mode and not its_owner and 1 or 0
      local left = redis.call('PTTL', lock)
      return {0, left, seat ~= '' and sit(queue, seats, owner, '0:' .. seat, tonumber(ARGV[1])) or 0, foreign}
    elseif its_round == round then
      -- Asked again after a lost answer. The lease counts from this request, as the asker's validity does.
      redis.call('PEXPIRE', lock, ttl)
      return {1, token}
    elseif tonumber(its_round) > tonumber(round) then
      -- A late request: its round is over.
      return {0, -2, 0, 0}
    end
    -- What an earlier round of the claim has, and has not given back yet. This round gets a vote of its own: the number
    -- of the earlier one may be from before the node lost its counters.
    since = its_since
  end
  local token = raise(counter, floor, many)
  redis.call('SET', lock, owner .. ':' .. token .. ':' .. since .. ':' .. round .. ':' .. label, 'PX', ttl)
  if seat ~= '' then leave(queue, seats, owner) end
  return {1, token}
end

local answers = {}
for claim = 1, #KEYS / 4 do
  local k, a = 4 * claim - 3, 7 * claim - 5
  local done, answer = xpcall(function()
    return vote(KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3],
      ARGV[a + 4], ARGV[a + 5], tonumber(ARGV[a + 6]))
  end, locate)
  answers[claim] = done and answer or {2, answer}
end
return answers
