-- The sleeper that was woken for a queue did not look: one more is told.
local lines = require('lines')
local step = require('step')
local wakes = require('wakes')

local function work()
  wakes.came(step.args.waker)
  lines.get(step.args.queue)
  wakes.queue(step.args.queue)
  return {}
end

return { work = work, looks = true }
