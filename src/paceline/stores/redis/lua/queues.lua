-- Every queue that has jobs or a pause.
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
step('queues', work, true)
