-- Room that is kept free for a job or a permit whose size alone is in its way.
local constants = require('constants')
local kinds = require('kinds')
local lanes = require('lanes')
local meters = require('meters')
local step = require('step')
local wakes = require('wakes')
local min, remove_at = math.min, table.remove
local NEVER = constants.NEVER

local reserving = {}
function reserving.lacks_only_room(meter, cost)
  if cost <= 1 or meters.opens_at(meter, 1) > step.now then
    return false
  end
  local opens = meters.opens_at(meter, cost)
  return step.now < opens and opens < NEVER
end

function reserving.lacks_only_time(meter, cost)
  if meter.in_flight >= meter.slots or meter.hold_until > step.now then
    return false
  end
  for place, part in ipairs(meter.parts) do
    if part[1] ~= 'rate' and part[1] ~= 'concurrency' then
      if kinds[part[1]].opens_at(meter, place, part, meter.states[place], cost) > step.now then
        return false
      end
    end
  end
  return true
end

-- Keep the room free for a job that does not fit yet, for one window at most: by then it fits.
function reserving.reserve(meter, holder, cost)
  local window = 0
  for _, part in ipairs(meter.parts) do
    if part[1] == 'rate' and part[3] > window then
      window = part[3]
    end
  end
  meter.dirty = true
  meter.reserved_by = holder
  meter.reserved_deadline = step.now + window
  -- Starts that are open leave at an instant that nobody knows.
  meter.reserved_until = min(meters.opens_at(meter, cost), meter.reserved_deadline)
  reserving.add_reserved(meter)
end

-- Keys whose room is kept for somebody.
function reserving.add_reserved(meter)
  for _, kept in ipairs(step.head.reserved) do
    if kept[1] == meter.name and kept[2] == (meter.group or '') then
      return
    end
  end
  step.head.reserved[#step.head.reserved + 1] = { meter.name, meter.group or '' }
end

function reserving.remove_reserved(meter)
  for place, kept in ipairs(step.head.reserved) do
    if kept[1] == meter.name and kept[2] == (meter.group or '') then
      remove_at(step.head.reserved, place)
      return
    end
  end
end

-- Whoever kept room free does not need it any more: others may have it.
function reserving.drop_reservations(holder)
  step.head.awaiting[holder] = nil
  if #step.head.reserved == 0 then
    return
  end
  local given_up = {}
  for _, kept in ipairs(step.head.reserved) do
    local meter = meters.get(kept[1], kept[2] ~= '' and kept[2] or nil)
    if meter.reserved_by == holder or not meter.reserved_by then
      given_up[#given_up + 1] = meter
    end
  end
  for _, meter in ipairs(given_up) do
    meter.reserved_by, meter.dirty = nil, true
    reserving.remove_reserved(meter)
    lanes.look_again_under(meter)
  end
  if #given_up > 0 then
    wakes.all()
  end
end

return reserving
