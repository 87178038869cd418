-- Takes exclusive locks that nobody holds or waits for. A refused claim leaves no record. The usual case, with as few
-- commands as possible. One call serves several claims.
--
-- KEYS  1: the token counter; then for each claim: the lock, its waiters
-- ARGV  1: seconds after which an unused token counter goes, '' for never; then for each claim: owner, ttl in
--       milliseconds, label
-- Answer, of one claim as it is, of several in a list, in order:
--       token    granted
--       1        held by another
--       0        nothing was done: claim.lua must decide, since somebody waits, or a group or the owner itself holds the
--                lock (a repeated request after a lost answer)
--
-- The lock's value is OWNER:TOKEN:SINCE:ROUND:LABEL; in the place of Redlock's round, a single server has how many tokens the
-- owner has, of which the token is the last. While a group holds it, the value is another.

-- include clock.lua
-- include raise.lua
-- include tokens.lua

local call, keys, args = redis.call, KEYS, ARGV

-- One claim for a free lock. Below are the same steps for all cases.
local lock = keys[2]
if not keys[4] and call('EXISTS', lock, keys[3]) == 0 then
  local token = take_tokens(keys[1], 1)
  call('SET', lock, args[2] .. ':' .. token .. ':' .. stamp .. ':1:' .. args[4], 'NX', 'PX', args[3])
  return token
end

local answers, last = {}, nil
for claim = 1, (#keys - 1) / 2 do
  local lock, a = keys[2 * claim], 3 * claim - 1
  local owner = args[a]
  if call('EXISTS', lock, keys[2 * claim + 1]) == 0 then
    if not last then
      -- For all claims of the call at once; numbers may stay unused.
      local many = (#keys - 1) / 2
      last = tonumber(raise(keys[1], last_token(keys[1]), now, many, args[1])) - many
    end
    last = last + 1
    local token = string.format('%.0f', last)
    call('SET', lock, owner .. ':' .. token .. ':' .. stamp .. ':1:' .. args[a + 2], 'NX', 'PX', args[a + 1])
    answers[claim] = token
  else
    answers[claim] = 0
    local value = redis.pcall('GET', lock)
    if type(value) == 'string' and string.byte(value) ~= 31 and string.sub(value, 1, 32) ~= owner then
      answers[claim] = 1
    end
  end
end
return keys[4] and answers or answers[1]
