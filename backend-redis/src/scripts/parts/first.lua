-- The first in the queue who still shows signs of life, and its seat. Those before it lose their places: `leave` says how.
local function first_of(queue, seats)
  while true do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then return nil end
    local text = redis.call('HGET', seats, owner) or ''
    local ends, mode, client, ticket = string.match(text, '^(%d+):(-?%d+):(.*):(%d+)$')
    local left = ends and tonumber(ends) - now
    -- One that lasts longer than any can is from before the clock was set back.
    if left and left > 0 and left <= 60000000 then
      return owner, {ends = ends, mode = mode, client = client, ticket = ticket}
    end
    leave(queue, seats, owner)
  end
end
