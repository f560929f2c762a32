-- Remove the queue: jobs, pauses, turns, the log of starts and the counters of limits that cover it alone.
local constants = require('constants')
local filing = require('filing')
local late = require('late')
local limits = require('limits')
local lines = require('lines')
local manage = require('manage')
local meters = require('meters')
local records = require('records')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local call, pack = redis.call, cmsgpack.pack
local SEP = constants.SEP
local stretch = manage.stretch
local refuse = step.refuse
local STATE, FENCE, KEYS = records.STATE, records.FENCE, records.KEYS

local function work()
  local line = lines.get(step.args.queue)
  if line.counts[3] > 0 and not step.args.force then
    refuse('active jobs')
  end
  local ids, next_from = stretch(step.args.queue, step.args.from, step.args.most)
  for _, id in ipairs(ids) do
    local row = step.rows[id]
    if row.run[STATE] == 3 then
      late.abandon(row)
      runs.free(row.run[KEYS] or {})
      runs.end_lease(runs.lease_name(row.run[FENCE], 'j', row.id))
    end
    runs.remove(line, row)
  end
  if not next_from then
    filing.save()
    for _, what in ipairs({ 'groups', 'resting', 'starts', 'unique', 'delayed', 'index' }) do
      call('DEL', step.prefix .. what .. SEP .. step.args.queue)
    end
    call('HDEL', step.prefix .. 'queues', step.args.queue)
    call('HDEL', step.prefix .. 'numbers', step.args.queue)
    step.lines[step.args.queue] = false
    for name, limit in pairs(limits.all()) do
      if limit.queues and #limit.queues == 1 and limit.queues[1] == step.args.queue then
        for _, meter in ipairs(meters.of(name)) do
          meters.forget_starts(meter)
        end
      end
    end
    wakes.queue(step.args.queue)
  end
  return { pack({ #ids, next_from }) }
end

return { work = work }
