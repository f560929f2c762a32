-- Pause or resume a queue, one of its tasks or one of its groups; what runs goes on.
local function work()
  local line = lines.get(args.queue)
  if args.group then
    lines.pause_group(line, args.group, args.paused)
  end
  if args.task then
    line.paused_tasks[args.task] = args.paused or nil
    lines.reclassify(line)
  end
  if not args.group and not args.task then
    line.paused, line.redefined = args.paused, true
  end
  wakes.queue(args.queue)
  return {}
end
step('pause', work)
