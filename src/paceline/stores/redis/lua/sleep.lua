-- A process listens: for queues, for the ends of jobs, for words about its own workers; or it does so no more.
local function work()
  if args.gone then
    wakes.came(args.waker, true)
    for _, queue in ipairs(args.queues) do
      call('ZREM', prefix .. 'sleep' .. SEP .. queue, args.waker)
      call('ZREM', prefix .. 'empty' .. SEP .. queue, args.waker)
    end
    if args.closed then
      call('ZREM', prefix .. 'asleep', args.waker)
      call('DEL', prefix .. 'wake' .. SEP .. args.waker)
    end
    for _, worker in ipairs(args.workers) do
      call('HDEL', prefix .. 'ears', worker)
    end
    return {}
  end
  wakes.sleep(args.waker, args.queues, args.wants_empty)
  wakes.tell_of_its_end(args.knew_born)
  for _, worker in ipairs(args.workers) do
    call('HSET', prefix .. 'ears', worker, args.waker)
  end
  return {}
end
step('sleep', work, true)
