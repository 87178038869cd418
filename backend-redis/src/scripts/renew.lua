-- Extends leases: compare and extend, for many locks in one call.
--
-- KEYS  the locks; then for each that is not exclusive: the members of the group that holds it, their details
-- ARGV  for each lock: owner, ttl in milliseconds; then for each that is not exclusive: its place among the locks
-- Answer for each lock, in order: 1 extended, 0 not the owner's any more

local answers, others = {}, {}
-- How many locks: each has one key and two arguments, and two keys and one argument more if it is not exclusive.
local many = (2 * #ARGV - #KEYS) / 3

-- What exclusive locks need. What the others need costs more, and is below.
for i = 1, many do
  local lock = KEYS[i]
  local value = redis.pcall('GET', lock)
  if type(value) == 'string' and string.sub(value, 1, 32) == ARGV[2 * i - 1] then
    answers[i] = redis.call('PEXPIRE', lock, ARGV[2 * i])
  else
    -- What is of another kind is another program's: it must not keep the other leases from being extended.
    if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
      -- Asked again without protection, the error names its line.
      redis.call('GET', lock)
    end
    answers[i], others[i] = 0, value
  end
end
if #KEYS == many then return answers end

-- include clock.lua
-- include group.lua

-- Extends the lease of a member, and says whether it is one.
local function extend(lock, members, details, owner, ttl)
  local alive = is_alive(members, details)
  local mine = (redis.call('HGET', details, owner) or '') ~= ''
  if mine then set_lease(members, owner, ttl * 1000) end
  if alive then span(lock, members, details) end
  return mine and 1 or 0
end

for j = 1, (#KEYS - many) / 2 do
  local i, k = tonumber(ARGV[2 * many + j]), many + 2 * j - 1
  local value = others[i]
  if type(value) == 'string' and mode_of(value) then
    answers[i] = extend(KEYS[i], KEYS[k], KEYS[k + 1], ARGV[2 * i - 1], ARGV[2 * i])
  end
end
return answers
