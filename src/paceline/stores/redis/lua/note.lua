-- Progress and log lines from the run that holds the fence.
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
      end
      row.more_dirty = true
    end
  end
  return { pack(lost) }
end
step('note', work, nil, true)
