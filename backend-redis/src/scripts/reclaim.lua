-- Makes records of holders again that the server has forgotten: see `server/reclaim.rs`. Only in a grace period, when nothing
-- else is granted. One call serves several holders.
--
-- KEYS  1: the token counter; then for each holder: the lock, the members of the group that holds the lock, their details, the
--       note of a forced release
-- ARGV  1 to 4: as in release_claim.lua, of which only the first is used; then for each holder: owner, ttl in milliseconds,
--       label, how many tokens, mode as in claim.lua, the last of its tokens, the history of the data
--       (master_replid) of the server that has forgotten
-- Answer for each holder, in order:
--       {1}          it has its record, made now or before
--       {0}          it has lost the lock
--       {5}          not now: another server answers by now, or old records of others are in the way, which will end
--       {2, text}    this one failed; {4, text}: the lock's key holds something that is no lock
--
-- A holder asks only while its lease is valid by its own clock. So of two records the one with the higher token is later, and the
-- other has ended, unless both belong to one group: it is old, and gives way. Which members of a semaphore are old nobody knows, so
-- nobody gives way there, and the holder asks again until the leases of the old ones have ended. A writer that became a reader
-- keeps its token, and the server may have forgotten only that: so where a reader takes the place of a writer, that one stays, as
-- a reader.

-- include clock.lua
-- include raise.lua
-- include tokens.lua
-- include group.lua
-- include each.lua

-- A connection outlasts the change of its server into a replica and back, and so does a call that is on its way.
local replication = redis.call('INFO', 'replication')

-- Whether a member of the group has a later token.
local function has_later(members, details, token)
  for _, other in ipairs(redis.call('ZRANGE', members, 0, -1)) do
    local detail = redis.call('HGET', details, other) or ''
    if (tonumber(string.match(detail, '^%d+')) or 0) > token then return true end
  end
end

-- Whether the holder of this token was freed by force: any holder was, if the server did not know all.
local function is_freed(freed, token)
  local note = redis.call('GET', freed)
  return note and (note == '' or token <= tonumber(note))
end

local function reclaim(a, value, lock, members, details, freed)
  local owner, ttl, label, many, mode, text, history = unpack(ARGV, a, a + 6)
  local token = tonumber(text)
  if not string.find(replication, 'master_replid:' .. history, 1, true) then return {5} end
  local group = value and mode_of(value)
  if group and not is_alive(members, details) then
    redis.call('DEL', lock)
    value, group = nil, nil
  end
  if value and string.sub(value, 1, 32) == owner then
    redis.call('PEXPIRE', lock, ttl)
    return {1}
  end
  if group and redis.call('HGET', details, owner) then
    -- It was a writer, and others have come since.
    if mode == '0' and has_later(members, details, token) then return {0} end
    set_lease(members, owner, ttl * 1000)
    span(lock, members, details)
    return {1}
  end
  if is_freed(freed, token) then return {0} end
  local writer
  if group and group == mode then
    if mode ~= '-1' and redis.call('ZRANGE', members, mode - 1, mode - 1)[1] then return {5} end
  elseif group then
    if has_later(members, details, token) then return {0} end
    group = nil
  elseif value then
    -- The lock of another program has no token.
    local other = string.match(value, '^%x+:(%d+):%d+:%d+:')
    if not other or tonumber(other) > token then return {0} end
    writer = mode == '-1' and value
  end
  -- First a write that needs no memory, see renew.lua.
  redis.call('HDEL', details, '')
  -- Later tokens are higher than this one.
  local last = last_token(KEYS[1])
  if token > last then raise(KEYS[1], last, token - 1, 1, ARGV[1]) end
  local record = text .. ':' .. stamp .. ':' .. many .. ':' .. label
  if mode == '0' then
    redis.call('SET', lock, owner .. ':' .. record, 'PX', ttl)
  else
    if writer then
      local left = redis.call('PTTL', lock)
      join_group(lock, members, details, nil, mode, string.sub(writer, 1, 32), string.sub(writer, 34), math.max(left, 1))
      group = mode
    end
    join_group(lock, members, details, group, mode, owner, record, ttl)
  end
  return {1}
end

return each(1, 4, 7, reclaim)
