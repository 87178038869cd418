-- Frees a lock whoever holds it, and wakes the first in its queue.
--
-- KEYS  the lock, its queue, the seats of those in the queue, the members of the group that holds the lock, their details
-- ARGV  1, 2: as in release.lua
-- Answer: {ticket, then the holders}. A holder is its owner, or '' if it is another program; ticket: as in release.lua

-- include clock.lua
-- include queue.lua
-- include wake.lua
-- include group.lua

local lock, queue, seats, members, details = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local answer = {''}
-- Reading it first refuses a value that is no lock of this kind.
local value = redis.call('GET', lock)
if value and mode_of(value) then
  is_alive(members, details)
  for _, owner in ipairs(redis.call('ZRANGE', members, 0, -1)) do
    if redis.call('HGET', details, owner) ~= '' then answer[#answer + 1] = owner end
  end
elseif value then
  answer[2] = string.match(value, '^(%x+):%d+:%d+:') or ''
end
redis.call('DEL', lock, members, details)
answer[1] = wake_first(queue, seats)
return answer
