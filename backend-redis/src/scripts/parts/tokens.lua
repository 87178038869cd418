-- Tokens of a single server. They are not below the clock, so that they rise also after the loss of their counter. Claims for
-- one token are slower than the clock; those for several bring the counter ahead of it by AHEAD at most, in microseconds.
-- ARGV 1: after how many seconds an unused counter goes, '' for never.
local AHEAD = 100000

local function last_token(counter)
  -- Arithmetic, which fails on something that is no number.
  return (redis.call('GET', counter) or 0) + 0
end

-- Takes tokens, fewer than `many` if the counter would be too far ahead. Returns the last of them, and how many there are;
-- or nothing, if there are fewer and all are needed.
local function take_tokens(counter, many, all)
  local last, fit = last_token(counter), many
  if many > 1 then fit = math.max(math.min(many, AHEAD - math.max(last - now, 0)), 1) end
  if all and fit < many then return nil end
  return raise(counter, last, now, fit, ARGV[1]), fit
end
