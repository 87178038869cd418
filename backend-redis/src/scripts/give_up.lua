-- Gives claims in any mode up: what they hold, and their places in queues. Grants what is free then to those who wait.
-- Several claims travel together.
--
-- KEYS  1: the token counter; then for each claim: the lock, its queue, its waiters, the members of
--       the group that holds the lock, their details
-- ARGV  1: seconds after which an unused token counter goes, '' for never; 2: the caller's channel; 3: 'exact' if the count
--       of listeners is to be trusted (not in a cluster); 4: how long a place is kept, in microseconds;
--       then for each claim: owner, mode as in claim.lua, '1' if it may stand in the queue, Redlock's round whose vote is
--       given back, '' for all that the claim has
-- Answer for each claim, in order:
--       {released, then what to tell waiters of the caller's own process}    released: 1 if it held the lock or a place,
--                              0 if it had neither. Those of other processes are told by a message: TICKET, to wake, or
--                              TICKET:TOKEN:ENDS:LEASE:SIGN, the lock is theirs: the end of the lease in microseconds, its
--                              length in milliseconds, the last sign of life that was seen
--       {2, text}              this claim failed, and has changed nothing
--       {4, text}              the lock's key holds something that is no lock
--
-- An exclusive lock goes to one. Readers, and those who want permits, come in together as far as there is room. Nobody is
-- granted anything at a node of Redlock: there the first is woken, and asks all nodes.

-- include clock.lua
-- include tokens.lua
-- include waiters.lua
-- include group.lua
-- include hand_on.lua
-- include record.lua
-- include each.lua

local function give_up(a, value, lock, queue, waiters, members, details)
  local owner, mode, queued, round = unpack(ARGV, a, a + 3)
  local group = value and mode_of(value)
  local released, lapsed = 0, not value
  if group then
    local alive = is_alive(members, details)
    -- What the claim of a writer has become by a downgrade is the reader's.
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
    -- Also of a reader, at a node of Redlock: it was a writer, and its downgrade has not come here.
    redis.call('DEL', lock)
    value, released = nil, 1
  end
  if queued == '1' and leave(queue, waiters, owner) == 1 then released = 1 end
  if value and not group then return {released} end
  if lapsed then drop_gone(queue, waiters) end
  local told = hand_on(KEYS[1], lock, queue, waiters, members, details, group or nil)
  return {released, unpack(told)}
end

return each(1, 5, 4, give_up)
