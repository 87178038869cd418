-- Redlock, phase 1 at one node, in any mode: takes locks that are free here or joins their readers, and raises their token
-- counters, or joins their queues.
--
-- KEYS  for each claim: the lock, its queue, its waiters, the members of the group that holds the lock,
--       their details, the lock's token counter
-- ARGV  1 to 4: as in claim.lua; then for each claim: owner, ttl in milliseconds, label, how many tokens, mode (0:
--       exclusive, -1: reader), waiter ('CLIENT:TICKET'; '' to leave no record if refused), floor of the token, round, '1' if it
--       receives no notifications
-- Answer for each claim, in order:
--       {1, vote}   the lock is the owner's, by this round; it raised the counter to exactly this number, by as many as it
--                   wants at least
--       others      as in claim.lua
--
-- A writer that was refused at this node has a place in its queue. Until the writer has had its turn, or gives no sign of
-- life, the node grants nothing to new readers. A majority refuses the writer, so a stream of readers cannot starve it.

-- include clock.lua
-- include raise.lua
-- include vote.lua
-- include waiters.lua
-- include group.lua
-- include record.lua
-- include each.lua

local function claim(a, value, lock, queue, waiters, members, details, counter)
  local owner, ttl, label, tokens, mode, waiter, floor, round, polls = unpack(ARGV, a, a + 8)
  local group = value and mode_of(value)
  if group and not is_alive(members, details) then
    redis.call('DEL', lock)
    value, group = nil, nil
  end
  -- Whether the lock is in use in the mode that is asked for. Permits of a client that uses this node alone refuse everybody.
  local alike = (group or '0') == mode
  local mine = alike and record_of(value, group, details, owner)
  local token, since, its_round
  if is_of(mine, owner, '') then
    -- The record of the claim, perhaps of an earlier round whose vote was not released yet.
    token, since, its_round = string.match(mine, '^%x+:(%d+):(%d+):(%d+):')
    -- A late request: its round is over.
    if tonumber(its_round) > tonumber(round) then return {0, -2, 0, 0, now} end
  else
    local held = value and not (group and alike)
    local first, first_waiter
    if mode == '-1' then first, first_waiter = first_of(queue, waiters) end
    local unknown = first_waiter == UNKNOWN
    if held or unknown or (first and first ~= owner and first_waiter.mode == '0') then
      local foreign = held and not group and not string.find(value, '^%x+:%d+:%d+:') and 1 or 0
      local left = held and redis.call('PTTL', lock) or unknown and 0 or -2
      local is_first = 0
      if waiter ~= '' then
        is_first = keep_place(queue, waiters, owner, mode .. ':' .. waiter, polls == '1' and 'p' or '', '')
      end
      return {0, left, unknown and 1 or is_first, foreign, now}
    end
  end
  if its_round ~= round then
    -- Each round gets a vote of its own. The number of an earlier one may be from before the node lost its counters; and a
    -- reader that was granted in between has not ended the vote of the last round, and must not have the lower token.
    token = vote(counter, floor, tokens)
    local rest = token .. ':' .. (since or stamp) .. ':' .. round .. ':' .. label
    if mode == '0' then
      redis.call('SET', lock, owner .. ':' .. rest, 'PX', ttl)
    else
      if not group then begin_group(lock, members, details, mode, ttl) end
      redis.call('HSET', details, owner, rest)
    end
    if waiter ~= '' then leave(queue, waiters, owner) end
    if mode == '-1' then
      -- The next reader can be granted the lock, too, and may wait for a notification.
      local first, waiter_of_first = first_of(queue, waiters)
      if first and waiter_of_first.mode == '-1' then
        redis.call('PUBLISH', waiter_of_first.client, waiter_of_first.ticket)
      end
    end
  elseif mode == '0' then
    -- A request that is repeated after a lost answer gets the same vote. The lease counts from this request, as the claim's
    -- validity does.
    redis.call('PEXPIRE', lock, ttl)
  end
  if mode == '-1' then
    set_lease(members, owner, ttl * 1000)
    span(lock, members, details)
  end
  return {1, token}
end

return each(0, 6, 9, claim)
