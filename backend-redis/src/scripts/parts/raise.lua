-- Raises a token counter by this number, from the floor if that is higher, and returns the new value: the last of as many
-- numbers, which are all above the counter and the floor. No command lowers a counter, not even for a moment. `life`: after
-- how many seconds an unused counter goes, '' for never. The lock is set afterwards: a failure in between leaves numbers
-- unused, but no lock without its number.
local function raise(counter, last, floor, many, life)
  local token = string.format('%.0f', math.max(last, floor) + many)
  if life == '' then
    redis.call('SET', counter, token)
  else
    redis.call('SET', counter, token, 'EX', life)
  end
  return token
end
