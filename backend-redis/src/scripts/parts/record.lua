-- The record of a claim is OWNER:TOKEN:SINCE:ROUND:LABEL. At a node of Redlock it belongs to the owner *and* the round:
-- requests of one round must not change records of another.

-- The record of the owner, if there is one: the lock's value, or its record among the members of the group.
local function record_of(value, group, details, owner)
  if not group then return value end
  local detail = redis.call('HGET', details, owner)
  return detail and owner .. ':' .. detail
end

-- Whether a record is the owner's, by this round; '' is any round, as where there are none.
local function is_of(record, owner, round)
  return type(record) == 'string' and string.sub(record, 1, 33) == owner .. ':'
    and (round == '' or string.match(record, '^%x+:%d+:%d+:(%d+):') == round)
end
