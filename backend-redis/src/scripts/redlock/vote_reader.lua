-- Redlock, phase 1 of readers at one node: joins locks that no writer holds or waits for here, and raises their token
-- counters.
--
-- KEYS  for each claim: its token counter, the lock, its queue, the seats of those in the queue, the members of the group
--       that holds the lock, their details
-- ARGV  as in vote.lua
-- Answer for each claim, in order: as in vote.lua
--
-- A writer that was refused at this node has a place in its queue: that lets no new readers in, until the writer has had
-- its turn or shows no signs of life. A writer is refused by a majority, so a stream of readers cannot starve it.

-- include clock.lua
-- include queue.lua
-- include first.lua
-- include group.lua
-- include raise.lua
-- include locate.lua

local function vote(counter, lock, queue, seats, members, details, owner, ttl, label, floor, round,
  seat, many)
  local value = redis.call('GET', lock)
  local group = value and mode_of(value)
  if group and not is_alive(members, details) then
    redis.call('DEL', lock)
    value, group = nil, nil
  end
  if group and group ~= '-1' then return {3, tonumber(group)} end
  local mine = group and redis.call('HGET', details, owner)
  local token, since, its_round
  if mine then
    token, since, its_round = string.match(mine, '^(%d+):(%d+):(%d+):')
    -- A late request: its round is over.
    if tonumber(its_round) > tonumber(round) then return {0, -2, 0, 0} end
  else
    local first, first_seat = first_of(queue, seats)
    local left = -2
    if value and not group then left = redis.call('PTTL', lock) end
    if (value and not group) or (first and first ~= owner and first_seat.mode == '0') then
      local foreign = value and not group and not string.find(value, '^%x+:%d+:%d+:') and 1 or 0
      return {0, left, seat ~= '' and sit(queue, seats, owner, '-1:' .. seat, tonumber(ARGV[1])) or 0, foreign}
    end
  end
  -- Asked again after a lost answer, the vote is the same. The next round gets another: a reader that was granted in between
  -- did not end the vote of the last one, as a writer would, and must not get the higher token.
  if its_round ~= round then
    token = raise(counter, floor, many)
    if not group then begin_group(lock, members, details, '-1', ttl) end
    redis.call('HSET', details, owner, token .. ':' .. (since or stamp) .. ':' .. round .. ':' .. label)
    if seat ~= '' then leave(queue, seats, owner) end
    -- The next reader can come in, too. It may be waiting for a word.
    local first, first_seat = first_of(queue, seats)
    if first and first_seat.mode == '-1' then redis.call('PUBLISH', first_seat.client, first_seat.ticket) end
  end
  set_lease(members, owner, ttl * 1000)
  span(lock, members, details)
  return {1, token}
end

local answers = {}
for claim = 1, #KEYS / 6 do
  local k, a = 6 * claim - 5, 7 * claim - 5
  local done, answer = xpcall(function()
    return vote(KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], ARGV[a], ARGV[a + 1],
      ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], tonumber(ARGV[a + 6]))
  end, locate)
  answers[claim] = done and answer or {2, answer}
end
return answers
