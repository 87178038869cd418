-- Carries out each claim of a call by itself, so that one that fails does not affect the others. `front`: the number of keys
-- before those of the claims, beside four arguments. `keys` and `args`: how many each claim has; its first key is the lock.
local function each(front, keys, args, carry_out)
  local answers = {}
  for claim = 1, (#KEYS - front) / keys do
    local k, a = front + (claim - 1) * keys + 1, 5 + (claim - 1) * args
    local value = redis.pcall('GET', KEYS[k])
    if type(value) == 'table' then
      answers[claim] = {4, value.err}
    else
      local done, answer = pcall(carry_out, a, value, unpack(KEYS, k, k + keys - 1))
      if not done then
        local text = type(answer) == 'table' and answer.err or tostring(answer)
        -- Redis 6 puts the line before the error of a command that it refuses: `@user_script: 35: -OOM ...`.
        text = string.gsub(text, '^@user_script: %d+: %-?', '')
        -- The server has become a replica, and nothing was written. That is an error of the whole call, and of its connection.
        if string.find(text, '^READONLY') then return redis.error_reply(text) end
        answer = {2, text}
      end
      answers[claim] = answer
    end
  end
  return answers
end
