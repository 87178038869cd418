-- Redlock: sets a lock again at a node that has lost it, while its owner holds it at a majority of the others.
--
-- KEYS  for each lock: its token counter, the lock, the members of the group that holds the lock, their details
-- ARGV  for each lock: owner, round, ttl in milliseconds, token, label, mode (0 exclusive, -1 reader)
-- Answer for each lock, in order: 1 if it is the owner's now, by this round, 0 if another has it
--
-- The counter is raised to the token, too, so that this node never gives a lower one.

-- include clock.lua
-- include value_of.lua
-- include group.lua
-- include record.lua

local answers = {}
for i = 1, #KEYS / 4 do
  local k, a = 4 * i - 3, 6 * i - 5
  local counter, lock, members, details = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local owner, round, ttl, token, mode = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 5]
  local value = value_of(lock)
  local group = type(value) == 'string' and mode_of(value)
  if group and not is_alive(members, details) then
    redis.call('DEL', lock)
    value, group = nil, nil
  end
  local mine = record_of(value, group, details, owner)
  answers[i] = is_of(mine, owner, round) and 1 or 0
  if not value or (group == '-1' and mode == '-1' and not mine) then
    if tonumber(redis.call('GET', counter) or 0) < tonumber(token) then redis.call('SET', counter, token) end
    local rest = token .. ':' .. stamp .. ':' .. round .. ':' .. ARGV[a + 4]
    if mode == '0' then
      redis.call('SET', lock, owner .. ':' .. rest, 'PX', ttl)
    else
      join_group(lock, members, details, group, mode, owner, rest, ttl)
    end
    answers[i] = 1
  end
end
return answers
