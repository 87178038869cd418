-- Sets a data key, if the fencing token of the writer is acceptable.
--
-- KEYS  1: the data key; 2: the key that remembers the highest token
-- ARGV  1: the token; 2: the id of the writer's hold; 3: the value; 4: the data's life in milliseconds, '' for ever
-- Answer: '' written; otherwise the highest token seen
--
-- Acceptable is a token above the highest, or the highest itself from the writer that it came from. "Not below" would
-- accept two holders that carry one number, as there can be after a failover that lost writes.

local writer = ARGV[2]
local fence = KEYS[2]
local high, mark = string.match(redis.call('GET', fence) or '0:', '^(%d+):(.*)$')
if not high then return redis.error_reply('WRONGTYPE the fence key holds something else') end
-- As texts: a Lua number holds 53 bits, a token 64.
local lower = #ARGV[1] < #high or (#ARGV[1] == #high and ARGV[1] < high)
if lower or (ARGV[1] == high and mark ~= writer) then return high end
redis.call('SET', fence, ARGV[1] .. ':' .. writer)
if ARGV[4] == '' then
  redis.call('SET', KEYS[1], ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
end
return ''
