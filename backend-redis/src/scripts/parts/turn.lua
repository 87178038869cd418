-- Turns a writer into the only reader, with its lease and its record, and says whether the owner is a reader now, by this call
-- or an earlier one. `round` is the one that was granted, '' where there are no rounds.
local function turn(lock, members, details, owner, round)
  local value = redis.call('GET', lock) or ''
  if mode_of(value) == '-1' then
    is_alive(members, details)
    return is_of(owner .. ':' .. (redis.call('HGET', details, owner) or ''), owner, round)
  end
  if not is_of(value, owner, round) then return false end
  local left = redis.call('PTTL', lock)
  begin_group(lock, members, details, '-1', math.max(left, 1))
  redis.call('HSET', details, owner, string.sub(value, 34))
  set_lease(members, owner, left * 1000)
  span(lock, members, details)
  return true
end
