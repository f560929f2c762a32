-- A page of jobs in the order they were added or backwards; a long search is cut into stretches.
local function work()
  local from, answer, found = args.from, { '' }, 0
  if args.after then
    local row = rows.find(args.after)
    if not row or row.queue ~= args.queue then
      refuse('no job', { id = args.after })
    end
    from = abs(row.order)
  end
  local searched, next_from = 0, from
  while next_from and found < args.limit and searched < args.most do
    local ids
    ids, next_from = stretch(args.queue, next_from, 200, args.newest_first)
    searched = searched + #ids
    for _, id in ipairs(ids) do
      local row = rows.held[id]
      if
        (not args.state or rows.seen(row) == args.state)
        and (not args.task or row.task == args.task)
        and (not args.group or row.group == args.group)
      then
        rows.give(row, answer)
        found = found + 1
        if found == args.limit then
          break
        end
      end
    end
  end
  answer[1] = pack({ now, found < args.limit and next_from })
  return answer
end
step('find', work, true)
