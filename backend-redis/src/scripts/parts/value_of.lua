-- The value of a lock's key, false without a key, or true if the value has another type, and so belongs to another program.
-- That must not affect the other locks of the call.
local function value_of(lock)
  local value = redis.pcall('GET', lock)
  if type(value) ~= 'table' then return value end
  -- A call without pcall, whose error names this line.
  if not string.find(value.err, 'WRONGTYPE', 1, true) then redis.call('GET', lock) end
  return true
end
