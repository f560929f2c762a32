-- Set an operator's numbers, or take them back; they win until lifted or over.
local limits = require('limits')
local step = require('step')
local refuse = step.refuse

local function work()
  local limit = limits.require(step.args.name)
  if step.args.lift then
    if limits.lift(step.args.name, step.args.group) then
      limits.opened(step.args.name)
    end
    return {}
  end
  if step.args.group and limit.by ~= 'group' then
    refuse('not per group')
  end
  local said = step.args.said
  if step.args.length then
    said.expires_at = step.now + step.args.length
  end
  limits.override(step.args.name, step.args.group, said)
  limits.opened(step.args.name)
  return {}
end

return { work = work }
