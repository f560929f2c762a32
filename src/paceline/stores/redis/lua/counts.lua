-- How many jobs of a queue are in each state.
local lines = require('lines')
local looking = require('looking')
local step = require('step')
local pack = cmsgpack.pack
local counts_of = looking.counts_of

local function work()
  if not lines.exists(step.args.queue) then
    return { pack({ 0, 0, 0, 0, 0, 0 }) }
  end
  return { pack(counts_of(lines.get(step.args.queue))) }
end

return { work = work, reads = true }
