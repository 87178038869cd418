-- Locks as stored procedures of Tarantool: `LISTEN=127.0.0.1:3301 tarantool locks.lua`, in a folder for the data.
local clock, fiber = require('clock'), require('fiber')
local now, PLACE_TTL = clock.monotonic, 10 -- seconds: a waiter that has not asked for so long is gone: it may outlive an outage
box.cfg{wal_mode = 'fsync', net_msg_max = 20000}
box.once('lockwell', function()
  box.schema.sequence.create('tokens')
  box.schema.space.create('locks', {format = {'name', 'owner', 'token', 'ttl', 'label', 'since'}})
  box.space.locks:create_index('name', {parts = {{1, 'string'}}})
  for _, name in ipairs{'take', 'renew', 'release', 'force', 'status'} do
    box.schema.func.create('lockwell.' .. name, {setuid = true})
    box.schema.user.grant('guest', 'execute', 'function', 'lockwell.' .. name)
  end
end)
local locks, ends = box.space.locks, {} -- the ends of the leases by name
local places, queues = {}, {} -- the waiters by owner, and the owners in their order by name
-- Renewals are not stored. So each lease begins again when the server starts.
for _, row in locks:pairs() do ends[row.name] = now() + row.ttl end

local function holder(name)
  local row = locks:get(name)
  return row and ends[name] > now() and row or nil
end

local function queue(name)
  local alive = {}
  for _, owner in ipairs(queues[name] or {}) do
    local place = places[owner]
    if place and place.seen + PLACE_TTL > now() then table.insert(alive, owner) else places[owner] = nil end
  end
  queues[name] = alive[1] and alive
  return alive
end

local function leave(owner)
  local place = places[owner]
  places[owner] = nil
  if place then place.cond:broadcast() end
  return place ~= nil
end

local function free(name, row)
  if row then locks:delete(name) end -- other calls may run before this one goes on
  if not locks:get(name) then ends[name] = nil end
  local first = places[queue(name)[1]]
  if first then first.cond:broadcast() end
  return row ~= nil
end

lockwell = {}
-- The token; nil if the lock is still held after so many seconds.
function lockwell.take(name, owner, ttl, label, seconds)
  local give_up, place = now() + seconds, nil
  repeat
    local row, first = holder(name), queue(name)[1]
    local mine = row and row.owner == owner
    if mine or not row and (first or owner) == owner then
      leave(owner)
      ends[name] = now() + ttl
      return box.atomic(function() -- one write to the log
        local token = mine and row.token or box.sequence.tokens:next()
        return locks:replace{name, owner, token, ttl, label, mine and row.since or clock.time()}.token
      end)
    end
    if seconds == 0 then return nil end
    if not places[owner] then
      queues[name], places[owner] = queues[name] or {}, {cond = fiber.cond()}
      table.insert(queues[name], owner)
    end
    place = place or places[owner]
    place.seen = now()
    place.cond:wait(math.max(0, math.min(give_up, row and ends[name] or give_up) - now()))
  until places[owner] ~= place or now() >= give_up
end

function lockwell.renew(grants)
  for at, grant in ipairs(grants) do
    local name, owner, ttl = unpack(grant)
    local row = holder(name)
    grants[at] = row ~= nil and row.owner == owner
    if grants[at] then ends[name] = now() + ttl end
  end
  return grants
end

function lockwell.release(name, owner)
  local row, waited = holder(name), leave(owner)
  return free(name, row and row.owner == owner and row or nil) or waited
end

function lockwell.force(name) return free(name, holder(name)) end

function lockwell.status(name)
  local row = holder(name)
  return {#queue(name), row and {row.token, row.label, ends[name] - now(), clock.time() - row.since} or box.NULL}
end
box.cfg{listen = os.getenv('LISTEN')}
