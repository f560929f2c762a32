-- Lift the hold of a key, or of all keys of a limit; or forget the starts of a key too.
local holds = require('holds')
local limits = require('limits')
local meters = require('meters')
local step = require('step')

local function work()
  if step.args.clear then
    local meter = limits.require_key(step.args.name, step.args.group)
    meters.forget_starts(meter)
    holds.release(meter)
    limits.opened(step.args.name, step.args.group)
    return {}
  end
  local limit = limits.require(step.args.name)
  if not step.args.group then
    limits.release_all(limit)
  end
  for _, meter in ipairs(meters.of(step.args.name)) do
    if not step.args.group or meter.group == step.args.group then
      holds.release(meter)
    end
  end
  limits.opened(step.args.name, step.args.group)
  return {}
end

return { work = work }
