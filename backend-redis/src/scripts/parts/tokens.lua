-- Takes this number of tokens from the counter, and returns the last of them: higher than all before it, and not below the
-- clock, so that tokens rise even after a flush or the loss of the counter. No command lowers the counter, not even for a moment. ARGV 1: after how
-- many seconds an unused counter goes, '' for never.
local last
local function take_tokens(counter, many)
  last = math.max((last or tonumber(redis.call('GET', counter) or 0)) + many, now)
  local token = string.format('%.0f', last)
  if ARGV[1] == '' then
    redis.call('SET', counter, token)
  else
    redis.call('SET', counter, token, 'EX', ARGV[1])
  end
  return token
end
