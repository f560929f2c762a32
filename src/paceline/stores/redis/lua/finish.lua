-- Step 4, finish: end runs whose fence is still current.
local runs = require('runs')
local step = require('step')
local pack = cmsgpack.pack

local function work()
  return { pack(runs.finish(step.args.finishes)) }
end

return { work = work }
