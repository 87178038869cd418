-- Releases claims in any mode: locks that they hold, and their places in queues. Grants what is free then to waiters.
-- One call serves several claims.
--
-- KEYS  1: the token counter; then for each claim: the lock, its queue, its waiters, the members of
--       the group that holds the lock, their details
-- ARGV  1: seconds after which an unused token counter goes, '' for never; 2: the caller's channel; 3: 'exact' if the count
--       of listeners is to be trusted (not in a cluster); 4: how long a place is kept, in microseconds;
--       then for each claim: owner, mode as in claim.lua, '1' if it may have a place in the queue, '2' if only a late copy of a
--       request may have taken one, the round of Redlock whose vote is released, '' for all rounds
-- Answer for each claim, in order:
--       {released, notifications for waiters of the caller's client..}    released: 1 if it held the lock or had a place, else
--                              0; the place of a late copy does not count, since its claim may have lost the lock. Other
--                              clients are notified by messages. A notification is TICKET (ask again), or
--                              TICKET:TOKEN:ENDS:LEASE:SIGN (the lock is granted): the end of the lease and its
--                              length in microseconds, the last heartbeat that was seen
--       {2, text}              this claim failed, and has changed nothing
--       {4, text}              the lock's key holds something that is no lock
--
-- An exclusive lock is granted to one waiter. Readers, and claims for permits, are granted it together as far as there is
-- room. A node of Redlock grants nothing here: it notifies the first waiter, which asks all nodes.

-- include clock.lua
-- include raise.lua
-- include tokens.lua
-- include waiters.lua
-- include group.lua
-- include grant_next.lua
-- include record.lua
-- include each.lua

local function release_claim(a, value, lock, queue, waiters, members, details)
  local owner, mode, queued, round = unpack(ARGV, a, a + 3)
  local group = value and mode_of(value)
  local released, was_free = 0, not value
  if group then
    local alive = is_alive(members, details)
    -- After a downgrade the member is the reader's: the writer's claim does not release it.
    if mode ~= '0' and is_of(record_of(value, group, details, owner), owner, round) then
      redis.call('ZREM', members, owner)
      redis.call('HDEL', details, owner)
      released = 1
      alive = redis.call('ZRANGE', members, 0, 0)[1]
    end
    if not alive then
      redis.call('DEL', lock)
      value, group = nil, nil
    elseif released == 1 then
      span(lock, members, details)
    end
  elseif is_of(value, owner, round) then
    -- Also for a reader at a node of Redlock, if it was a writer and its downgrade has not arrived here.
    redis.call('DEL', lock)
    value, released = nil, 1
  end
  if queued ~= '' and leave(queue, waiters, owner) == 1 and queued == '1' then released = 1 end
  if value and not group then return {released} end
  if was_free then note_lapsed(waiters) end
  local notifications = grant_next(KEYS[1], lock, queue, waiters, members, details, group or nil)
  return {released, unpack(notifications)}
end

return each(1, 5, 4, release_claim)
