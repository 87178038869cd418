-- Takes locks in any mode, or joins their queues. One call serves several claims.
--
-- KEYS  1: the token counter; then for each claim: the lock, its queue, its waiters, the members of
--       the group that holds the lock, their details
-- ARGV  1: seconds after which an unused token counter goes, '' for never; 2: ''; 3: 'exact' if the count of listeners is to
--       be trusted (not in a cluster), 'closed' if nothing may be granted; 4: how long a place is kept, in microseconds;
--       then for each claim: owner, ttl in milliseconds, label, how many tokens, mode (0: exclusive, -1: reader, otherwise
--       how many permits there are), waiter ('CLIENT:TICKET'; '' to leave no record if refused), the length of a provisional
--       lease in milliseconds ('' if no release may grant to it), the number of this heartbeat, '1' if it receives no
--       notifications, the place that it had ('' if none)
-- Answer for each claim, in order:
--       {1, token, many}                    granted, now or by an earlier call of the same owner; the last of its tokens, and
--                                           how many it has
--       {0, left, first, foreign, clock, used, place}  busy: milliseconds left of the holder's lease, for a semaphore of the one
--                                           that ends first (-1 endless, -2 nothing to wait for), whether the claim is the first in
--                                           the queue or is to ask at once, whether the holder is another program; the server's time
--                                           in microseconds; the mode of the holders, if there are any; its place if it is new
--       {2, text}                           this claim failed, and has changed nothing that matters
--       {4, text}                           the lock's key holds something that is no lock
--
-- Idempotent for the owner: a repeated call finds what the first one did.
--
-- Claims of two modes do not hold the lock at the same time: the lock's value is one writer or names the one mode of its group, and
-- only a claim of that mode joins (`room`; grant_next). So a claim of another kind waits in the queue as a writer does.

-- include clock.lua
-- include raise.lua
-- include tokens.lua
-- include waiters.lua
-- include group.lua
-- include grant_next.lua
-- include each.lua

-- Takes or keeps the place of a waiter. Returns whether it is the first, 1 or 0, and its place if it is new.
local function wait_in(queue, waiters, a)
  local owner, label, tokens, mode, waiter, lease = ARGV[a], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
  if waiter == '' then return 0 end
  local form = ':' .. label
  if ARGV[a + 8] == '1' then
    form = 'p:' .. label
  elseif lease ~= '' then
    form = 'g' .. tokens .. ':' .. lease .. ':' .. ARGV[a + 7] .. ':' .. label
  end
  return keep_place(queue, waiters, owner, mode .. ':' .. waiter, form, ARGV[a + 9])
end

local function claim(a, value, lock, queue, waiters, members, details, again)
  local owner, ttl, label, tokens, mode = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  -- Nothing is granted, and what is recorded of holders may be out of date. Places are kept, so that the order stays.
  if ARGV[3] == 'closed' then
    local is_first, place = wait_in(queue, waiters, a)
    return {0, -2, is_first, 0, now, false, place}
  end
  local group = value and mode_of(value)
  if group and not is_alive(members, details) then
    redis.call('DEL', lock)
    value, group = nil, nil
  end
  -- A repeated request after a lost answer, or a grant by a release. The lease counts from this request, as the claim's
  -- validity does.
  if value and string.sub(value, 1, 32) == owner then
    redis.call('PEXPIRE', lock, ttl)
    local token, many = string.match(value, '^%x+:(%d+):%d+:(%d+):')
    return {1, token, tonumber(many)}
  end
  local mine = group and redis.call('HGET', details, owner)
  if mine then
    set_lease(members, owner, ttl * 1000)
    span(lock, members, details)
    local token, many = string.match(mine, '^(%d+):%d+:(%d+):')
    return {1, token, tonumber(many)}
  end
  if not value then note_lapsed(waiters) end
  local first, first_waiter = first_of(queue, waiters)
  local others_first = first and first ~= owner
  local unknown = first_waiter == UNKNOWN
  local room = not value or (group == mode and has_room(members, mode))
  if room and not others_first and not unknown then
    local token, many = take_tokens(KEYS[1], tonumber(tokens))
    if first then leave(queue, waiters, owner) end
    local record = token .. ':' .. stamp .. ':' .. many .. ':' .. label
    if mode == '0' then
      redis.call('SET', lock, owner .. ':' .. record, 'NX', 'PX', ttl)
      if not first then redis.call('DEL', waiters) end
    else
      join_group(lock, members, details, group, mode, owner, record, ttl)
      grant_next(KEYS[1], lock, queue, waiters, members, details, mode)
    end
    return {1, token, many}
  end
  -- Waiters ahead of this claim can be granted the lock, and this claim may join them.
  if room and not again then
    grant_next(KEYS[1], lock, queue, waiters, members, details, value and group)
    return claim(a, redis.call('GET', lock), lock, queue, waiters, members, details, true)
  end
  local left = unknown and 0 or -2
  if value and not group then
    left = redis.call('PTTL', lock)
  elseif value and not room then
    local ends = redis.call('ZRANGE', members, 0, 0, 'WITHSCORES')[2]
    left = math.max(math.ceil((tonumber(ends) - now) / 1000), 0)
  end
  local foreign = value and not group and not string.find(value, '^%x+:%d+:%d+:') and 1 or 0
  local is_first, place = wait_in(queue, waiters, a)
  if unknown then is_first = 1 end
  return {0, left, is_first, foreign, now, value and tonumber(group or '0'), place}
end

return each(1, 5, 10, claim)
