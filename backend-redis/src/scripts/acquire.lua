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
-- The lock's value is OWNER:TOKEN:SINCE:ROUND:LABEL; the round is Redlock's. While a group holds it, the value is another.

local call, keys, args = redis.call, KEYS, ARGV
local time = call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local counter, life = keys[1], args[1]

-- A token is above all before it, and not below the clock, so that tokens rise over a flush or a lost counter. No command
-- lowers the counter, not even for a moment.
local function raise_to(token)
  if life == '' then call('SET', counter, token) else call('SET', counter, token, 'EX', life) end
end

-- One claim for a free lock. Below are the same steps for all cases.
local lock = keys[2]
if not keys[4] and call('EXISTS', lock, keys[3]) == 0 then
  local last, token = call('GET', counter), stamp
  -- Of one length, as they are until the year 2286, texts compare like numbers, at less cost.
  if last and (#last ~= #stamp or last >= stamp) and tonumber(last) >= tonumber(stamp) then
    token = string.format('%.0f', tonumber(last) + 1)
  end
  raise_to(token)
  call('SET', lock, args[2] .. ':' .. token .. ':' .. stamp .. ':0:' .. args[4], 'NX', 'PX', args[3])
  return token
end

local answers, last = {}, nil
for claim = 1, (#keys - 1) / 2 do
  local lock, a = keys[2 * claim], 3 * claim - 1
  local owner = args[a]
  if call('EXISTS', lock, keys[2 * claim + 1]) == 0 then
    if not last then
      -- For all claims of the call at once; numbers may stay unused.
      last = math.max(tonumber(call('GET', counter) or 0), tonumber(stamp) - 1)
      raise_to(string.format('%.0f', last + (#keys - 1) / 2))
    end
    last = last + 1
    local token = string.format('%.0f', last)
    call('SET', lock, owner .. ':' .. token .. ':' .. stamp .. ':0:' .. args[a + 2], 'NX', 'PX', args[a + 1])
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
