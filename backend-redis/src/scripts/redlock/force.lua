-- Frees a lock that these hold, and wakes the first in its queue. It names whom it frees: repeated after a lost answer, it
-- leaves the lock of a successor alone.
--
-- KEYS  the lock, its queue, the seats of those in the queue, the members of the group that holds the lock, their details
-- ARGV  1, 2: as in release.lua; then the holders: each by its owner, or, where it is another program, by the value of
--       the lock
-- Answer: {ticket, then the holders that were freed}; ticket: as in release.lua

-- include clock.lua
-- include queue.lua
-- include wake.lua
-- include group.lua
-- include record.lua

local lock, queue, seats, members, details = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local answer = {''}
-- Reading it first refuses a value that is no lock of this kind.
local value = redis.call('GET', lock)
local group = value and mode_of(value)
for i = 3, #ARGV do
  local name = ARGV[i]
  if group then
    if redis.call('HDEL', details, name) == 1 then answer[#answer + 1] = name end
    redis.call('ZREM', members, name)
  elseif value and (value == name or is_of(value, name, '')) then
    redis.call('DEL', lock)
    value = nil
    answer[2] = name
  end
end
if group then
  if is_alive(members, details) then
    span(lock, members, details)
  else
    redis.call('DEL', lock, members, details)
    value = nil
  end
end
if not value or group then answer[1] = wake_first(queue, seats, value and group) end
return answer
