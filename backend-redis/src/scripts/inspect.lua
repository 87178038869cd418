-- Says who holds a lock, how many wait, and since when. Changes nothing.
--
-- KEYS  the lock, its queue, its waiters, the members of the group that holds the lock, their details
-- Answer: {the time in microseconds, waiters, the first of them, mode, then for each holder:
--         value, milliseconds left of its lease (-1 endless)}. Of each waiter: since when it waits, its mode, its label. The mode is 0 for one exclusive holder, -1 for readers,
--         otherwise how many permits there are; the value is that of an exclusive lock, see acquire.lua

-- include clock.lua
-- include group.lua

local lock, queue, members, details = KEYS[1], KEYS[2], KEYS[4], KEYS[5]

-- Of a long queue only the head is looked at: those behind it are counted as they are.
local LOOKED_AT = 200
local SHOWN = 16

local waiters, first = 0, {}
local came = redis.call('ZRANGE', queue, 0, LOOKED_AT - 1, 'WITHSCORES')
for i = 1, #came, 2 do
  local ends, mode = string.match(redis.call('HGET', KEYS[3], came[i]) or '', '^(%d+):(-?%d+):')
  local left = ends and tonumber(ends) - now
  -- It has given a heartbeat in time.
  if left and left > 0 and left <= 60000000 then
    waiters = waiters + 1
    if waiters <= SHOWN then
      local form = redis.call('HGET', KEYS[3], '+' .. came[i]) or ''
      first[#first + 1] = came[i + 1]
      first[#first + 1] = mode
      first[#first + 1] = string.match(form, '^g%d+:%d+:%d+:(.*)$') or string.match(form, '^p?:(.*)$') or ''
    end
  end
end
if #came == 2 * LOOKED_AT then
  local last = redis.call('ZRANGE', queue, -1, -1)[1]
  waiters = waiters + redis.call('ZRANK', queue, last) + 1 - LOOKED_AT
end
local answer = {now, waiters, first, 0}
local value = redis.call('GET', lock)
local mode = value and mode_of(value)
if not value then return answer end
if not mode then
  answer[5] = value
  answer[6] = redis.call('PTTL', lock)
  return answer
end
answer[4] = tonumber(mode)
local found = redis.call('ZRANGE', members, 0, -1, 'WITHSCORES')
for i = 1, #found, 2 do
  local left = tonumber(found[i + 1]) - now
  local detail = redis.call('HGET', details, found[i])
  if left > 0 and detail then
    answer[#answer + 1] = found[i] .. ':' .. detail
    answer[#answer + 1] = math.ceil(left / 1000)
  end
end
return answer
