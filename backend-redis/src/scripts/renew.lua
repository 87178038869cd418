-- Extends leases: compare and extend, for many locks in one call.
--
-- KEYS  the locks; then for those that a group may hold: its members, their details
-- ARGV  for each lock: owner, ttl in milliseconds, the round of Redlock that was granted, '' for a single server; then for
--       those that a group may hold: their positions among the locks
-- Answer for each lock, in order: 1 extended, 0 not the owner's any more, or not by this round
--
-- A record of another round of the same claim does not count: it may be released at any moment.

-- include value_of.lua
-- include record.lua

local answers, values = {}, {}
-- How many locks: each has one key and three arguments, and two keys and one argument more if a group may hold it.
local many = (2 * #ARGV - #KEYS) / 5

-- Exclusive locks. Those of groups need more commands, below. Also for a reader at a node of Redlock, if it was a writer and
-- its downgrade has not arrived here.
for i = 1, many do
  local lock, a = KEYS[i], 3 * i - 2
  values[i], answers[i] = value_of(lock), 0
  if is_of(values[i], ARGV[a], ARGV[a + 2]) then answers[i] = redis.call('PEXPIRE', lock, ARGV[a + 1]) end
end
if #KEYS == many then return answers end

-- include clock.lua
-- include group.lua

-- Extends the lease of a member, and says whether it is one.
local function extend(lock, members, details, owner, ttl, round)
  local alive = is_alive(members, details)
  local mine = is_of(record_of(nil, true, details, owner), owner, round)
  if mine then
    -- First a write that needs no memory: a server that is full (maxmemory) refuses ZADD, unless the script has written.
    redis.call('PEXPIRE', lock, ttl)
    set_lease(members, owner, ttl * 1000)
  end
  if alive then span(lock, members, details) end
  return mine and 1 or 0
end

for j = 1, (#KEYS - many) / 2 do
  local i, k = tonumber(ARGV[3 * many + j]), many + 2 * j - 1
  local a, value = 3 * i - 2, values[i]
  if type(value) == 'string' and mode_of(value) then
    answers[i] = extend(KEYS[i], KEYS[k], KEYS[k + 1], ARGV[a], ARGV[a + 1], ARGV[a + 2])
  end
end
return answers
