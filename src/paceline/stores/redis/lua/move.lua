-- All or none: every job is checked before the first one moves.
local function work()
  local found, seen = {}, {}
  rows.load(args.ids)
  for _, id in ipairs(args.ids) do
    if not seen[id] then
      seen[id] = true
      found[#found + 1] = rows.require(id)
    end
  end
  for _, row in ipairs(found) do
    if not allows(args.move, row) then
      refuse('move', { id = row.id, state = rows.seen(row) })
    end
  end
  local taken = {}
  for _, row in ipairs(args.move == 'retry' and found or {}) do
    local name = row.unique and row.queue .. SEP .. row.unique
    local holder = name and (taken[name] or key_holder(row))
    if holder then
      -- Another one has its unique key since, or takes it in the same move: it stays finished.
      refuse('move', { id = row.id, state = rows.seen(row), holder = holder })
    end
    if name then
      taken[name] = row.id
    end
  end
  for _, row in ipairs(found) do
    move_one(row, args.move)
  end
  return {}
end
step('move', work)
