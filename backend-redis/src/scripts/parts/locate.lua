-- Redis names the line of an error only outside of pcall. Level 4 is the line that called Redis.
local function locate(err)
  local _, line = pcall(error, '', 4)
  return (type(err) == 'table' and err.err or tostring(err)) .. ' on @' .. line
end
