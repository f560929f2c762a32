-- All limits in the order they were declared, with what operators said.
local limits = require('limits')
local pack = cmsgpack.pack

local function work()
  return { pack(limits.in_order()) }
end

return { work = work, reads = true }
