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
  for _, row in ipairs(found) do
    move_one(row, args.move)
  end
  return {}
end
step('move', work, EVEN_WHEN_FULL)
