-- Declare limits for everybody, at once.
local classes = require('classes')
local limits = require('limits')
local step = require('step')
local pack = cmsgpack.pack

local function work()
  local changed, widened = limits.declare(step.args.again and limits.forgotten(step.args.limits) or step.args.limits)
  if widened then
    classes.reclassify_all()
  end
  for _, change in ipairs(changed) do
    limits.opened(change.new.name)
  end
  return { pack({ changed, step.now }) }
end

return { work = work }
