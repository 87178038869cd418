-- Redlock: raises a token counter by this number, or to the floor, which is the same at all nodes. Returns the new value. The
-- lock is set afterwards: a failure in between leaves numbers unused, but no lock without its number.
local function raise(counter, floor, many)
  local raised = tonumber(redis.call('GET', counter) or 0) + many
  -- A floor from a clock that is far ahead would use the numbers up for everybody.
  floor = math.min(tonumber(floor), now + 60000000)
  if raised < floor then raised = floor end
  local token = string.format('%.0f', raised)
  redis.call('SET', counter, token)
  return token
end
