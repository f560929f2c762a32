-- End permits, and the waits for them: their slots are free.
local permits = require('permits')
local reserving = require('reserving')
local step = require('step')

local function work()
  for _, id in ipairs(step.args.permits) do
    reserving.drop_reservations(id)
    local permit = permits.permit(id)
    if permit then
      permits.end_permit(permit, true)
    end
  end
  return {}
end

return { work = work }
