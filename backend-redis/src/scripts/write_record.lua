-- Writes the record of a lock for its present holder. Looks and writes in one step.
--
-- KEYS  the lock, the record
-- ARGV  1: OWNER:TOKEN: of the grant; 2: the id of its hold; 3: the number of the write among those of the hold; 4: the record's
--       life in milliseconds, '' for ever; 5: the record, HOLD:NUMBER:TOKEN:VALUE
-- Answer: HOLD:NUMBER:0: of the last write, which is this one or a later one of the hold; '' if this grant does not hold the lock
--         alone

local lock, record = KEYS[1], KEYS[2]
local grant, hold, number, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- Not the owner alone: a late copy of its acquire may have got the lock again, after a forced release. The members of a group
-- have other records.
local value = redis.pcall('GET', lock)
if type(value) ~= 'string' or string.sub(value, 1, #grant) ~= grant then return '' end
local last, count = string.match(redis.call('GET', record) or '', '^(%x+):(%d+):')
-- A late copy of an earlier write, or a repetition.
if last == hold and tonumber(count) >= tonumber(number) then return last .. ':' .. count .. ':0:' end
if life == '' then
  redis.call('SET', record, ARGV[5])
else
  redis.call('SET', record, ARGV[5], 'PX', life)
end
return hold .. ':' .. number .. ':0:'
