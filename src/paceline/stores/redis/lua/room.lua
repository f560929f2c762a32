-- How many starts of cost 1 a key admits now: a claim looks at the windows once, and counts from there.
local meters = require('meters')
local rate = require('rate')
local step = require('step')
local min = math.min

local room = {}

local function count_room(meter)
  local number = meter.slots - meter.in_flight
  if number <= 0 or meter.hold_until > step.now or (step.head.lost_at and meters.safe_at(meter) > step.now) then
    return 0
  end
  if meter.is_spaced or meter.open > 0 then
    return meters.opens_in_time(meter, 1) <= step.now and 1 or 0
  end
  for place, part in ipairs(meter.parts) do
    if part[1] == 'rate' then
      number = min(number, rate.room(meter, place, part, meter.states[place]))
    end
  end
  return number
end

-- Whether the key admits a start of cost 1 now: most claims ask that for every start, and look at the windows once.
function room.admits_unit(meter)
  if not meter.room or meter.room <= 0 then
    meter.room = count_room(meter)
  end
  return meter.room > 0
end

return room
