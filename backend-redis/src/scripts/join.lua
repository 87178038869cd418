-- Takes locks together with others, as a reader or as one of a semaphore, or joins their queues. Several claims travel
-- together.
--
-- KEYS  1: the token counter; then for each claim: the lock, its queue, the seats of those in the queue, the members of
--       the group that holds the lock, their details
-- ARGV  1, 2: as in take.lua; 3: 'exact' if the count of listeners is to be trusted (not in a cluster);
--       then for each claim: owner, ttl in milliseconds, label, seat, how many tokens, mode (-1: reader, otherwise how many
--       permits there are)
-- Answer for each claim, in order: as in take.lua; for a semaphore, `left` is what is left of the lease that ends first
--
-- Idempotent for the owner: a repeated call finds what the first one did.

-- include clock.lua
local counter = KEYS[1]
local keep = tonumber(ARGV[2])
local wanted = 0
for a = 8, #ARGV, 6 do wanted = wanted + ARGV[a] end

-- include tokens.lua
-- include queue.lua
-- include group.lua
-- include locate.lua

-- Whether one more may join the members in this mode.
local function has_room(members, mode)
  if mode == '-1' then return true end
  local last = mode - 1
  return not redis.call('ZRANGE', members, last, last)[1]
end

-- Lets those in who stand at the head of the queue and can come in, too. They are members from now on, though not for
-- long unless they come: so all come in at once, and nobody from behind can come in before them. Who is one of many is let
-- in by one of those who have come.
local function let_in(queue, seats, members, details, mode)
  for _ = 1, 100 do
    if not has_room(members, mode) then return end
    local owner, seat = first_of(queue, seats)
    if not owner or seat.mode ~= mode then return end
    leave(queue, seats, owner)
    local stays = keep
    if redis.call('PUBLISH', seat.client, seat.ticket) == 0 and ARGV[3] == 'exact' then stays = 2000000 end
    redis.call('HSET', details, owner, '')
    set_lease(members, owner, stays)
  end
end

-- How the lock is in use, if that is of another kind than this mode.
local function clash(mode, used)
  if used == mode or (tonumber(used) <= 0 and mode == '-1') then return nil end
  return {3, tonumber(used)}
end

local function join(lock, queue, seats, members, details, owner, ttl, label, seat, tokens, mode)
  local value = redis.call('GET', lock)
  local group = value and mode_of(value)
  if group and not is_alive(members, details) then
    redis.call('DEL', lock)
    value, group = nil, nil
  end
  if value then
    local other = clash(mode, group or '0')
    if other then return other end
  end
  -- '' if it has been let in, and more if it has come before.
  local mine = group and redis.call('HGET', details, owner)
  if mine and mine ~= '' then
    -- Asked again after a lost answer. The lease counts from this request, as the asker's belief does.
    set_lease(members, owner, ttl * 1000)
    span(lock, members, details)
    return {1, string.match(mine, '^%d+')}
  end
  local first, first_seat
  if not mine then first, first_seat = first_of(queue, seats) end
  local others_first = first and first ~= owner
  if others_first then
    local other = clash(mode, first_seat.mode)
    if other then return other end
  end
  local room = not value or (group and (mine or has_room(members, mode)))
  if room and not others_first then
    local token = take_tokens(tokens)
    if not group then begin_group(lock, members, details, mode, ttl) end
    redis.call('HSET', details, owner, token .. ':' .. stamp .. ':0:' .. label)
    set_lease(members, owner, ttl * 1000)
    if first then leave(queue, seats, owner) end
    let_in(queue, seats, members, details, mode)
    span(lock, members, details)
    return {1, token}
  end
  -- Not ours to take, though one of those before us could. It may have missed its call.
  if room and (not value or first_seat.mode == mode) then
    redis.call('PUBLISH', first_seat.client, first_seat.ticket)
  end
  local left = -2
  if value and not group then
    left = redis.call('PTTL', lock)
  elseif not room then
    local ends = redis.call('ZRANGE', members, 0, 0, 'WITHSCORES')[2]
    left = math.ceil((tonumber(ends) - now) / 1000)
  end
  local foreign = value and not group and not string.find(value, '^%x+:%d+:%d+:') and 1 or 0
  return {0, left, seat ~= '' and sit(queue, seats, owner, mode .. ':' .. seat, keep) or 0, foreign}
end

local answers = {}
for claim = 1, (#ARGV - 3) / 6 do
  local k, a = 5 * claim - 3, 6 * claim - 2
  local done, answer = xpcall(function()
    return join(KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], ARGV[a], ARGV[a + 1], ARGV[a + 2],
      ARGV[a + 3], tonumber(ARGV[a + 4]), ARGV[a + 5])
  end, locate)
  answers[claim] = done and answer or {2, answer}
end
return answers
