-- Pause or resume a queue, one of its tasks or one of its groups; what runs goes on.
local classes = require('classes')
local lines = require('lines')
local step = require('step')
local wakes = require('wakes')

local function work()
  local line = lines.get(step.args.queue)
  if step.args.group then
    lines.pause_group(line, step.args.group, step.args.paused)
  end
  if step.args.task then
    line.paused_tasks[step.args.task] = step.args.paused or nil
    classes.reclassify(line)
  end
  if not step.args.group and not step.args.task then
    line.paused, line.redefined = step.args.paused, true
  end
  wakes.queue(step.args.queue)
  return {}
end

return { work = work }
