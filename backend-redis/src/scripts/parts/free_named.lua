-- Frees a lock that these hold: the arguments from this place on. Each is an owner, or the value of the lock where another
-- program holds it. Answers how many were freed, and the lock's value and mode of a group as they are now.
local function free_named(lock, members, details, from)
  local freed = 0
  -- Reading it first refuses a value that is no lock of this kind.
  local value = redis.call('GET', lock)
  local group = value and mode_of(value)
  for i = from, #ARGV do
    local name = ARGV[i]
    if group then
      freed = freed + redis.call('HDEL', details, name)
      redis.call('ZREM', members, name)
    elseif value and (value == name or is_of(value, name, '')) then
      redis.call('DEL', lock)
      value, freed = nil, 1
    end
  end
  if group and is_alive(members, details) then
    span(lock, members, details)
  elseif group then
    redis.call('DEL', lock, members, details)
    value, group = nil, nil
  end
  return freed, value, group or nil
end
