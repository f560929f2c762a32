-- Progress and log lines from the run that holds the fence.
-- The end of a log: its last 1000 lines, and of these what fits 64 KiB.
local function last_lines(lines)
  local first, size = #lines + 1, 0
  while first > 1 and #lines - first + 1 < 1000 do
    size = size + #lines[first - 1]
    if size > 65536 then
      break
    end
    first = first - 1
  end
  if first == 1 then
    return lines
  end
  local kept = {}
  for place = first, #lines do
    kept[#kept + 1] = lines[place]
  end
  return kept
end

local function work()
  local lost = {}
  for _, note in ipairs(args.notes) do
    local row = rows.find(note.id)
    if not row or row.state ~= 3 or row.fence ~= note.fence then
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
step('note', work, true)
