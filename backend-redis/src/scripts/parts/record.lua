-- The record of a claim is OWNER:TOKEN:SINCE:ROUND:LABEL. At a node of Redlock it belongs to the owner *and* the round: what
-- one round sends must not touch what another round has. '' stands for any round.
local function is_of(record, owner, round)
  local its_owner, its_round = string.match(record, '^(%x+):%d+:%d+:(%d+):')
  return its_owner == owner and (round == '' or its_round == round)
end
