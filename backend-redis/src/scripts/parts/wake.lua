-- Wakes the first in the queue, if there is one: of the mode `only`, where that is given. A waiter of the caller's own
-- process is not sent a message: its ticket is the answer, '' otherwise. ARGV 1 is the caller's channel, ARGV 2 is 'exact'
-- if the count of listeners is to be trusted (not in a cluster).
local function wake_first(queue, seats, only)
  local owner, seat = first_of(queue, seats)
  if not owner or (only and seat.mode ~= only) then return '' end
  if seat.client == ARGV[1] then return seat.ticket end
  if redis.call('PUBLISH', seat.client, seat.ticket) == 0 and ARGV[2] == 'exact' then
    -- Nobody listens: it loses its place soon, unless it gives a sign of life. One that lives does so in time, every 1.3 s:
    -- a proxy, or a connection that is just being made, can keep it from being counted.
    local soon = string.format('%.0f', math.min(tonumber(seat.ends), now + 2000000))
    redis.call('HSET', seats, owner, soon .. ':' .. seat.mode .. ':' .. seat.client .. ':' .. seat.ticket)
  end
  return ''
end
