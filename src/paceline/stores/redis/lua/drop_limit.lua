-- Forget a limit: the jobs that met it go on without it.
local classes = require('classes')
local limits = require('limits')
local step = require('step')
local pack = cmsgpack.pack

local function work()
  local dropped = limits.drop(step.args.name)
  if dropped then
    classes.reclassify_all()
  end
  return { pack(dropped) }
end

return { work = work }
