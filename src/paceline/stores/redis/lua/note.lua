-- Progress and log lines from the run that holds the fence.
-- The end of a log: its last 1000 lines, and of these what fits 64 KiB.
local records = require('records')
local rows = require('rows')
local step = require('step')
local pack = cmsgpack.pack
local STATE, FENCE = records.STATE, records.FENCE

local function last_lines(list)
  local first, size = #list + 1, 0
  while first > 1 and #list - first + 1 < 1000 do
    size = size + #list[first - 1]
    if size > 65536 then
      break
    end
    first = first - 1
  end
  if first == 1 then
    return list
  end
  local kept = {}
  for place = first, #list do
    kept[#kept + 1] = list[place]
  end
  return kept
end

local function work()
  local lost = {}
  for _, note in ipairs(step.args.notes) do
    local row = rows.find(note.id)
    if not row or row.run[STATE] ~= 3 or row.run[FENCE] ~= note.fence then
      lost[#lost + 1] = note.id
    else
      local more = rows.more(row)
      if note.progress then
        more.progress, more.message = note.progress, note.message
      end
      if note.log then
        more.logs[#more.logs + 1] = note.log
        more.logs = last_lines(more.logs)
      end
      row.more_dirty = true
    end
  end
  return { pack(lost) }
end

return { work = work, looks = true }
