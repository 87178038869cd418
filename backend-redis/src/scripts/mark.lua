-- Replaces the mark that names the server which may grant locks, or the note of a node of Redlock, unless another client has
-- changed it.
--
-- KEYS  the mark. ARGV  1: the mark that was seen, '' if there was none; 2: the new one
-- Answer: 1 if it was replaced, 0 if another was found

local mark = KEYS[1]
if (redis.call('GET', mark) or '') ~= ARGV[1] then return 0 end
-- First a write that needs no memory: a server that is full (maxmemory) refuses SET, unless the script has written. Without its mark,
-- releases would be refused, too.
redis.call('DEL', mark)
redis.call('SET', mark, ARGV[2])
return 1
