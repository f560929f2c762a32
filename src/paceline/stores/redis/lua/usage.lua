-- How full a key is; a per-group limit without a group is asked about a group nobody has used.
local limits = require('limits')
local looking = require('looking')
local meters = require('meters')
local step = require('step')
local pack = cmsgpack.pack
local waiting_under, usage_of = looking.waiting_under, looking.usage_of

local function work()
  local limit = limits.require(step.args.name)
  if limit.by == 'group' and not step.args.group then
    return { pack(usage_of(meters.fresh(step.args.name, nil), 1, waiting_under(step.args.name, nil))) }
  end
  local meter = limits.require_key(step.args.name, step.args.group)
  return { pack(usage_of(meter, 1, waiting_under(step.args.name, step.args.group))) }
end

return { work = work, reads = true }
