-- Everything that decides when a job may start.
local classes = require('classes')
local groups = require('groups')
local limits = require('limits')
local lines = require('lines')
local looking = require('looking')
local meters = require('meters')
local order = require('order')
local rate = require('rate')
local records = require('records')
local rows = require('rows')
local step = require('step')
local call, pack, unpack_one, format, max = redis.call, cmsgpack.pack, cmsgpack.unpack, string.format, math.max
local waiting_under, over_under = looking.waiting_under, looking.over_under
local groups_waiting, usage_of = looking.groups_waiting, looking.usage_of
local goes_first = order.goes_first
local STATE, QUEUE, TASK, GROUP = records.STATE, records.QUEUE, records.TASK, records.GROUP
local PRIORITY, COST = records.PRIORITY, records.COST

local function ahead_of(line, row)
  if rows.seen(row) == 2 then
    return 0
  end
  local lane = groups.find(groups.get(line, row.head[GROUP] or ''), classes.class_for(line, row.head[TASK]))
  if not lane then
    return 0
  end
  local rank = call('ZRANK', lane.key, rows.place(row))
  if rank then
    return rank
  end
  -- Due, but not filed yet.
  local ahead = call('ZCOUNT', lane.key, '-inf', format('(%.0f', row.head[PRIORITY]))
  for _, member in ipairs(call('ZRANGEBYSCORE', lane.key, row.head[PRIORITY], row.head[PRIORITY])) do
    if goes_first(member, rows.place(row)) then
      ahead = ahead + 1
    end
  end
  return ahead
end

local function is_known(row)
  local anybody = false
  for _, blob in ipairs(call('HVALS', step.prefix .. 'workers')) do
    local worker = unpack_one(blob)
    for _, queue in ipairs(worker.queues) do
      if queue == row.run[QUEUE] then
        anybody = true
        if not worker.tasks then
          return true
        end
        for _, task in ipairs(worker.tasks) do
          if task == row.head[TASK] then
            return true
          end
        end
      end
    end
  end
  return not anybody
end

local function dump(meter)
  local states = {}
  for place, part in ipairs(meter.parts) do
    local state = meter.states[place]
    if part[1] == 'rate' then
      local numbers, ats, sums = rate.dump(meter, place, part, state)
      for index, at in ipairs(ats) do
        numbers[#numbers + 1] = at
        numbers[#numbers + 1] = sums[index]
      end
      states[place] = numbers
    else
      states[place] = state or {}
    end
  end
  local living = meter.in_flight - over_under(meter)
  local held = max(meter.hold_until, meters.safe_at(meter))
  return { states = states, in_flight = living, hold_until = held, open = meter.open }
end

local function work()
  local row = rows.require(step.args.id)
  local line = lines.get(row.run[QUEUE])
  local paused, keys, trials = {}, {}, {}
  if line.paused then
    paused[#paused + 1] = { 'queue', line.name }
  end
  if line.paused_tasks[row.head[TASK]] then
    paused[#paused + 1] = { 'task', row.head[TASK] }
  end
  if row.head[GROUP] and line.paused_groups[row.head[GROUP]] then
    paused[#paused + 1] = { 'group', row.head[GROUP] }
  end
  if row.run[STATE] == 1 then
    for _, limit in ipairs(limits.meeting(line.name, row.head[TASK])) do
      if limit.by ~= 'group' or row.head[GROUP] then
        local group = limit.by == 'group' and row.head[GROUP] or nil
        local meter, cost = meters.get(limit.name, group), rows.cost_under(row.head[COST], limit.name)
        keys[#keys + 1] = usage_of(meter, cost, waiting_under(limit.name, group))
        trials[#trials + 1] = dump(meter)
      end
    end
  end
  local ahead = row.run[STATE] == 1 and ahead_of(line, row) or 0
  local answer = { pack({ step.now, paused, is_known(row), keys, trials, ahead, groups_waiting(line) }) }
  rows.give(row, answer)
  return answer
end

return { work = work, reads = true }
