-- Holds: nobody starts under a key before an instant, because an outside service or an operator said so.
local classes = require('classes')
local limits = require('limits')
local meters = require('meters')
local step = require('step')
local floor, min = math.floor, math.min

local holds = {}

-- Let nobody start before the instant. A hold only ever grows.
function holds.hold(meter, at, reason)
  meters.touch(meter)
  meter.held_at = step.now
  if at > meter.hold_until then
    meter.hold_until, meter.hold_reason = at, reason or nil
  end
end

-- Hold after an outside refusal without a time; each one in a row holds longer.
function holds.refuse(meter, backoff, jitter, reason, started_at)
  if started_at and meter.refusals > 0 and started_at <= meter.held_at then
    return -- it ran already when the hold was made: the same refusal, heard once more
  end
  meter.refusals = meter.refusals + 1
  local length = min(floor(backoff.initial * backoff.multiplier ^ (meter.refusals - 1)), backoff.maximum)
  holds.hold(meter, step.now + length + floor(length * jitter), reason)
end

-- Lift the hold; what was counted stays.
function holds.release(meter)
  meters.touch(meter)
  meter.hold_until, meter.hold_reason, meter.refusals = 0, nil, 0
end

-- A job that started after the hold went well: the next refusal is the first in a row again.
function holds.succeeded(meter, started_at)
  if meter.refusals > 0 and started_at > meter.held_at then
    meter.refusals, meter.dirty = 0, true
  end
end
-- Hold one key; without a time the limit's own backoff decides.
function holds.hold_key(hold, started_at)
  if hold.create and not limits.find(hold.limit) then
    limits.declare({ hold.create })
    classes.reclassify_all()
  end
  local limit = limits.require(hold.limit)
  local held
  if limit.by == 'group' and not hold.group then
    held = meters.of(hold.limit)
    limits.hold_all(limit, hold.till or step.now + (hold.length or 0), hold.reason)
  else
    held = { limits.require_key(hold.limit, hold.group) }
  end
  for _, meter in ipairs(held) do
    if hold.till then
      holds.hold(meter, hold.till, hold.reason)
    elseif hold.length then
      holds.hold(meter, step.now + hold.length, hold.reason)
    else
      holds.refuse(meter, limit.backoff or hold.backoff, hold.jitter, hold.reason, started_at)
    end
  end
end

return holds
