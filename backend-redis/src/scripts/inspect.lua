-- Says who holds a lock and how many wait. Changes nothing.
--
-- KEYS  the lock, its queue, its waiters, the members of the group that holds the lock, their details
-- Answer: {the time in microseconds, waiters, mode, then for each holder: value, milliseconds left of its lease (-1
--         endless)}. The mode is 0 for one exclusive holder, -1 for readers, otherwise how many permits there are; the value
--         is that of an exclusive lock, see acquire.lua

-- include clock.lua
-- include group.lua

local lock, members, details = KEYS[1], KEYS[4], KEYS[5]
local waiters = 0
for _, waiter in ipairs(redis.call('HVALS', KEYS[3])) do
  local ends = string.match(waiter, '^(%d+):')
  local left = ends and tonumber(ends) - now
  if left and left > 0 and left <= 60000000 then waiters = waiters + 1 end
end
local answer = {now, waiters, 0}
local value = redis.call('GET', lock)
local mode = value and mode_of(value)
if not value then return answer end
if not mode then
  answer[4] = value
  answer[5] = redis.call('PTTL', lock)
  return answer
end
answer[3] = tonumber(mode)
local found = redis.call('ZRANGE', members, 0, -1, 'WITHSCORES')
for i = 1, #found, 2 do
  local left = tonumber(found[i + 1]) - now
  local detail = redis.call('HGET', details, found[i])
  if left > 0 and detail == '' then
    answer[2] = answer[2] + 1
  elseif left > 0 and detail then
    answer[#answer + 1] = found[i] .. ':' .. detail
    answer[#answer + 1] = math.ceil(left / 1000)
  end
end
return answer
