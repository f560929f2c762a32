-- A process listens: for queues, for the ends of jobs, for words about its own workers; or it does so no more.
local constants = require('constants')
local step = require('step')
local wakes = require('wakes')
local call = redis.call
local SEP = constants.SEP

local function work()
  if step.args.gone then
    wakes.came(step.args.waker, true)
    for _, queue in ipairs(step.args.queues) do
      call('ZREM', step.prefix .. 'sleep' .. SEP .. queue, step.args.waker)
      call('ZREM', step.prefix .. 'empty' .. SEP .. queue, step.args.waker)
    end
    if step.args.closed then
      call('ZREM', step.prefix .. 'asleep', step.args.waker)
      call('DEL', step.prefix .. 'wake' .. SEP .. step.args.waker)
    end
    for _, worker in ipairs(step.args.workers) do
      call('HDEL', step.prefix .. 'ears', worker)
    end
    return {}
  end
  wakes.sleep(step.args.waker, step.args.queues, step.args.wants_empty)
  wakes.tell_of_its_end(step.args.knew_born)
  for _, worker in ipairs(step.args.workers) do
    call('HSET', step.prefix .. 'ears', worker, step.args.waker)
  end
  return {}
end

return { work = work, looks = true }
