-- Carries out the claims of a call, of so many keys and arguments each, so that one that fails does not keep the others
-- from being served.
local function each(keys, args, carry_out)
  local answers = {}
  for claim = 1, (#KEYS - 1) / keys do
    local k, a = 2 + (claim - 1) * keys, 5 + (claim - 1) * args
    local value = redis.pcall('GET', KEYS[k])
    if type(value) == 'table' then
      answers[claim] = {4, value.err}
    else
      local done, answer = pcall(carry_out, KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], a, value)
      answers[claim] = done and answer or {2, type(answer) == 'table' and answer.err or tostring(answer)}
    end
  end
  return answers
end
