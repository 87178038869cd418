-- Redlock: raises a token counter by this number, or from the floor, which is the same at all nodes. Returns the new value.
local function vote(counter, floor, many)
  -- A floor from a clock that is far ahead would use the numbers up for everybody, and a node that forgets could not tell. So it
  -- counts up to a second ahead of the node's clock.
  floor = math.min(tonumber(floor), now + 1000000)
  return raise(counter, (redis.call('GET', counter) or 0) + 0, floor, many, '')
end
