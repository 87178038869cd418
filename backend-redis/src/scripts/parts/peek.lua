-- The value of a lock's key; nothing if there is none; true if it is of another kind, and so another program's. That must
-- not keep the other locks of the call from being served.
local function peek(lock)
  local value = redis.pcall('GET', lock)
  if type(value) ~= 'table' then return value end
  -- Asked again without protection, the error names its line.
  if not string.find(value.err, 'WRONGTYPE', 1, true) then redis.call('GET', lock) end
  return true
end
