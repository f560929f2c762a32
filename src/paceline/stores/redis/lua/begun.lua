-- Step 3, begun: handlers and permits began later than their stamps allow, so they count from there.
local late = require('late')
local records = require('records')
local step = require('step')
local pack, max, min = cmsgpack.pack, math.max, math.min
local STARTED_AT = records.STARTED_AT

local function work()
  local lost = {}
  late.load_held(step.args.leases)
  for _, lease in ipairs(step.args.leases) do
    local holder = late.held(lease)
    if holder then
      late.begin(holder, min(max(step.now - lease[3], holder.run[STARTED_AT] or 0), step.now))
    else
      lost[#lost + 1] = lease[1]
    end
  end
  return { pack({ lost, step.head.charges }) }
end

return { work = work }
