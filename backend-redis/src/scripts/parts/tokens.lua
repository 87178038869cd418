-- The token counter, at `counter`. `wanted` is how many tokens all claims of this call want.
local last

-- Takes so many tokens, and answers the last of them: above all before it, and not below the clock, so that tokens rise
-- over a flush or a lost counter. What the whole call may need is taken from the counter when the first is needed;
-- numbers may stay unused.
local function take_tokens(many)
  if not last then
    local before = redis.call('GETSET', counter, stamp)
    last = now - many
    if before and tonumber(before) > last then last = tonumber(before) end
    local reserved = last + wanted
    if reserved ~= now then redis.call('SET', counter, string.format('%.0f', reserved)) end
    if ARGV[1] ~= '0' then redis.call('EXPIRE', counter, ARGV[1]) end
  end
  last = last + many
  return string.format('%.0f', last)
end
