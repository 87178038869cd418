-- Says which commands the user may not use here.
--
-- ARGV  1: a key of the namespace; 2: a channel of it; then further commands that will be needed
-- Answer: their names. A server older than Redis 7 cannot say, and answers none.

local missing = {}
if not redis.acl_check_cmd then return missing end
local key, channel = ARGV[1], ARGV[2]

-- A command that the server does not have, because it was renamed, is an error to ask for.
local function may(call)
  local known, allowed = pcall(redis.acl_check_cmd, unpack(call))
  return known and allowed
end

for _, call in ipairs({
  {'EVALSHA', 'x', '0'}, {'SUBSCRIBE', channel}, {'PUBLISH', channel, ''}, {'TIME'}, {'EXISTS', key}, {'GET', key},
  {'SET', key, ''}, {'DEL', key}, {'PTTL', key}, {'PEXPIRE', key, '1'}, {'ZADD', key, '0', ''},
  {'ZRANGE', key, '0', '0'}, {'ZRANK', key, ''}, {'ZREM', key, ''}, {'HSET', key, '', ''}, {'HGET', key, ''},
  {'HDEL', key, ''},
}) do
  if not may(call) then missing[#missing + 1] = call[1] end
end
for i = 3, #ARGV do
  local more = {ARGV[i], key, '1'}
  -- Since Redis 8 it is an error to ask with a wrong number of arguments.
  if ARGV[i] == 'WAIT' then more = {'WAIT', '0', '0'} end
  if ARGV[i] == 'ASKING' then more = {'ASKING'} end
  if not may(more) then missing[#missing + 1] = ARGV[i] end
end
return missing
