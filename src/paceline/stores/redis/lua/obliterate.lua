-- Remove the queue: jobs, pauses, turns, the log of starts and the counters of limits that cover it alone.
local function work()
  local line = lines.get(args.queue)
  if line.counts[3] > 0 and not args.force then
    refuse('active jobs')
  end
  local ids, next_from = stretch(args.queue, args.from, args.most)
  for _, id in ipairs(ids) do
    local row = rows.held[id]
    if row.state == 3 then
      runs.abandon(row)
      runs.free(row.keys or {})
      runs.end_lease(runs.lease_name(row.fence, 'j', row.id))
    end
    runs.remove(line, row)
  end
  if not next_from then
    lanes.save()
    for _, what in ipairs({ 'groups', 'resting', 'starts', 'unique', 'delayed', 'index' }) do
      call('DEL', prefix .. what .. SEP .. args.queue)
    end
    call('HDEL', prefix .. 'queues', args.queue)
    call('HDEL', prefix .. 'numbers', args.queue)
    lines.held[args.queue] = false
    for name, limit in pairs(limits.all()) do
      if limit.queues and #limit.queues == 1 and limit.queues[1] == args.queue then
        for _, meter in ipairs(meters.of(name)) do
          meters.forget_starts(meter)
        end
      end
    end
    wakes.queue(args.queue)
  end
  return { pack({ #ids, next_from }) }
end
step('obliterate', work)
