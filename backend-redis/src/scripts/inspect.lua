-- Says who holds a lock and how many wait. Changes nothing.
--
-- KEYS  the lock, its queue, the seats of those in the queue
-- Answer: {value or '', milliseconds left of the lease (-1 endless), the time in microseconds, waiters}

local time = redis.call('TIME')
local now = tonumber(time[1] .. string.sub('00000' .. time[2], -6))
local waiters = 0
for _, seat in ipairs(redis.call('HVALS', KEYS[3])) do
  local until_when = string.match(seat, '^(%d+):')
  local left = until_when and tonumber(until_when) - now
  if left and left > 0 and left <= 60000000 then waiters = waiters + 1 end
end
local value = redis.call('GET', KEYS[1]) or ''
local left = redis.call('PTTL', KEYS[1])
return {value, left, now, waiters}
