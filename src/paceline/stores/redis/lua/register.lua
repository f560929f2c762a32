-- Say which queues and tasks a worker serves, or that it stops.
local function work()
  if args.worker then
    local known = call('HGET', prefix .. 'workers', args.worker.id)
    head.epochs = head.epochs + 1
    args.worker.seen_at, args.worker.order = now, known and unpack_one(known).order or head.epochs
    call('HSET', prefix .. 'workers', args.worker.id, pack(args.worker))
  else
    call('HDEL', prefix .. 'workers', args.gone)
    call('HDEL', prefix .. 'claims', args.gone)
    call('HDEL', prefix .. 'ears', args.gone)
  end
  return {}
end
step('register', work, true)
