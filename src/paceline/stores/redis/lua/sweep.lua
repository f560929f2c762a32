-- One stretch of a queue: move or remove the jobs in one state. Returns how many, and where to go on.
local function since(row)
  if row.finished_at then
    return row.finished_at
  end
  return row.due_at > now and row.created_at or row.due_at
end

local function is_wanted(row)
  if args.how == 'drain' then
    return row.state == 1
  end
  return rows.seen(row) == args.state and (args.how == 'move' or now - since(row) > args.older_than)
end

local function work()
  if not lines.exists(args.queue) then
    return { pack({ 0, false }) }
  end
  local ids, next_from = stretch(args.queue, args.from, args.most)
  local line, number = lines.get(args.queue), 0
  for _, id in ipairs(ids) do
    local row = rows.held[id]
    if is_wanted(row) and not (args.move == 'retry' and key_holder(row)) then
      number = number + 1
      if args.how == 'move' then
        move_one(row, args.move)
      else
        runs.remove(line, row)
      end
    end
  end
  if args.how == 'drain' then
    wakes.queue(args.queue)
  end
  return { pack({ number, next_from }) }
end
step('sweep', work)
