-- Say which queues and tasks a worker serves, or that it stops.
local function work()
  if args.worker then
    head.epochs = head.epochs + 1
    args.worker.seen_at, args.worker.order = now, head.epochs
    call('HSET', prefix .. 'workers', args.worker.id, pack(args.worker))
  else
    call('HDEL', prefix .. 'workers', args.gone)
    call('HDEL', prefix .. 'claims', args.gone)
    call('HDEL', prefix .. 'ears', args.gone)
  end
  return {}
end
step('register', work, true)
