-- The sleeper that was woken for a queue did not look: one more is told.
local function work()
  wakes.came(args.waker)
  lines.get(args.queue)
  wakes.queue(args.queue)
  return {}
end
step('wake', work, true)
