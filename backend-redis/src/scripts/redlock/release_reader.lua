-- Redlock: gives the claims of readers up at one node, what they hold and their places in the queue.
--
-- KEYS  for each claim: the lock, its queue, the seats of those in the queue, the members of the group that holds the
--       lock, their details
-- ARGV  as in release.lua of Redlock
-- Answer for each claim, in order: as there
--
-- One waiter is woken, the first in the queue, if it can come in now. It lets those in that can come in with it.

-- include clock.lua
-- include queue.lua
-- include first.lua
-- include wake.lua
-- include group.lua
-- include record.lua
-- include locate.lua

local function release(lock, queue, seats, members, details, owner, queued, round)
  local value = redis.call('GET', lock)
  local group = value and mode_of(value)
  local released = 0
  if group then
    local alive = is_alive(members, details)
    if is_of(owner .. ':' .. (redis.call('HGET', details, owner) or ''), owner, round) then
      redis.call('ZREM', members, owner)
      redis.call('HDEL', details, owner)
      released = 1
      alive = redis.call('ZRANGE', members, 0, 0)[1]
    end
    if not alive then
      redis.call('DEL', lock)
      value = nil
    elseif released == 1 then
      span(lock, members, details)
    end
  elseif value and is_of(value, owner, round) then
    -- A writer whose downgrade has not come here.
    redis.call('DEL', lock)
    value = nil
    released = 1
  end
  if queued == '1' and leave(queue, seats, owner) == 1 then released = 1 end
  if value and not group then return {released, ''} end
  return {released, wake_first(queue, seats, value and group)}
end

local answers = {}
for claim = 1, (#ARGV - 2) / 3 do
  local k, a = 5 * claim - 4, 3 * claim
  local done, answer = xpcall(function()
    return release(KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], ARGV[a], ARGV[a + 1], ARGV[a + 2])
  end, locate)
  answers[claim] = done and answer or {2, answer}
end
return answers
