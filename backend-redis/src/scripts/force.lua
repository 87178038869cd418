-- Frees a lock whoever holds it, and wakes the first in its queue.
--
-- KEYS  the lock, its queue, the seats of those in the queue
-- Answer: 1 if somebody held it, 0 if not

local time = redis.call('TIME')
local now = tonumber(time[1] .. string.sub('00000' .. time[2], -6))
-- Reading it first refuses a value that is no lock of this kind.
local held = redis.call('GET', KEYS[1]) and 1 or 0
redis.call('DEL', KEYS[1])
while true do
  local owner = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not owner then break end
  local seat = redis.call('HGET', KEYS[3], owner)
  local until_when, client, ticket = string.match(seat or '', '^(%d+):(.*):(%d+)$')
  local left = until_when and tonumber(until_when) - now
  -- One that lasts longer than any can is from before the clock was set back.
  if left and left > 0 and left <= 60000000 then
    redis.call('PUBLISH', client, ticket)
    break
  end
  redis.call('ZREM', KEYS[2], owner)
  redis.call('HDEL', KEYS[3], owner)
end
return held
