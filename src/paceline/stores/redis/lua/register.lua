-- Say which queues and tasks a worker serves, or that it stops.
local step = require('step')
local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack

local function work()
  if step.args.worker then
    local known = call('HGET', step.prefix .. 'workers', step.args.worker.id)
    step.head.epochs = step.head.epochs + 1
    step.args.worker.seen_at, step.args.worker.order = step.now, known and unpack_one(known).order or step.head.epochs
    call('HSET', step.prefix .. 'workers', step.args.worker.id, pack(step.args.worker))
  else
    call('HDEL', step.prefix .. 'workers', step.args.gone)
    call('HDEL', step.prefix .. 'claims', step.args.gone)
    call('HDEL', step.prefix .. 'ears', step.args.gone)
  end
  return {}
end

return { work = work, looks = true }
