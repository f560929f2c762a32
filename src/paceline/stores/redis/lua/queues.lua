-- Every queue that has jobs or a pause.
local lines = require('lines')
local looking = require('looking')
local order = require('order')
local pack = cmsgpack.pack
local counts_of, groups_waiting = looking.counts_of, looking.groups_waiting
local sorted_keys = order.sorted_keys

local function work()
  local found = {}
  for _, line in ipairs(lines.all()) do
    local counts = counts_of(line)
    local tasks, groups = sorted_keys(line.paused_tasks), sorted_keys(line.paused_groups)
    local jobs = 0
    for _, number in ipairs(counts) do
      jobs = jobs + number
    end
    if jobs > 0 or line.paused or #tasks > 0 or #groups > 0 then
      found[#found + 1] = { line.name, counts, groups_waiting(line), line.paused or false, tasks, groups }
    end
  end
  return { pack(found) }
end

return { work = work, reads = true }
