-- Forget a limit: the jobs that met it go on without it.
local limits = require('limits')
local lines = require('lines')
local step = require('step')
local pack = cmsgpack.pack

local function work()
  local dropped = limits.drop(step.args.name)
  if dropped then
    lines.reclassify_all()
  end
  return { pack(dropped) }
end

return { work = work }
