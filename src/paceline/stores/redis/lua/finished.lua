-- The job once it is in a final state; until then the one who asks is told when it ends.
local records = require('records')
local rows = require('rows')
local step = require('step')
local wakes = require('wakes')
local pack = cmsgpack.pack
local STATE = records.STATE

local function work()
  local row = rows.require(step.args.id)
  local answer = { pack({ step.now }) }
  if row.run[STATE] >= 4 then
    rows.give(row, answer)
  else
    wakes.wait_for(step.args.id, step.args.waker)
  end
  return answer
end

return { work = work, looks = true }
