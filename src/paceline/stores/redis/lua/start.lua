-- What a start changes: the job is active and leased, every key is charged, and its group has had its turn.
local choosing = require('choosing')
local constants = require('constants')
local lanes = require('lanes')
local late = require('late')
local lines = require('lines')
local meters = require('meters')
local records = require('records')
local reserving = require('reserving')
local room = require('room')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local turns = require('turns')
local wakes = require('wakes')
local format, min = string.format, math.min
local NEVER, ONE, READY, PAUSED = constants.NEVER, constants.ONE, constants.READY, constants.PAUSED
local WAITS, ACTIVE, FAILED = constants.WAITS, constants.ACTIVE, constants.FAILED
local STATE, ATTEMPTS_MADE, STARTED_AT = records.STATE, records.ATTEMPTS_MADE, records.STARTED_AT
local FENCE, WORKER, LEASE_UNTIL = records.FENCE, records.WORKER, records.LEASE_UNTIL
local KEYS, QUEUE, GATE, GUARD, COST = records.KEYS, records.QUEUE, records.GATE, records.GUARD, records.COST

local start = {}

-- A start filled a group's key: file its lanes here and now. Other queues find out when they are asked.
local function file_full(meter)
  if room.admits_unit(meter) then
    return
  end
  local till = meters.opens_at(meter, 1)
  for _, lane in ipairs(lanes.under(meter, step.args.queues)) do
    if lane.state == READY then
      lanes.file_until(lane, till)
    end
  end
end

-- Charge one key; `keys` is what the run remembers of all of them: limit, group, epoch and cost of each.
local function charge(row, meter, cost, keys)
  meters.charge(meter, row.id, cost)
  if #step.head.reserved > 0 and not meter.reserved_by then
    reserving.remove_reserved(meter)
  end
  local list = keys.list
  local size = #list
  list[size + 1], list[size + 2], list[size + 3], list[size + 4] = meter.name, meter.group or false, meter.epoch, cost
  keys.guard = min(keys.guard, meter.guard)
end

-- Charge a job to all its keys. All jobs of a lane that cost 1 have the same ones: they are written down once.
local function charge_all(lane, row, cost)
  local all, keys = lanes.all_meters(lane), lane.unit_keys
  if cost == 1 and keys and #step.head.reserved == 0 and #step.choosing.also == 0 then
    for place = 1, #all do
      meters.charge(all[place], row.id, 1)
    end
  else
    keys = { guard = NEVER, list = {} }
    for _, meter in ipairs(all) do
      charge(row, meter, rows.cost_under(cost, meter.name), keys)
    end
    for _, meter in ipairs(choosing.brought(all)) do
      charge(row, meter, rows.cost_under(cost, meter.name), keys)
    end
    lane.unit_keys = cost == 1 and #step.choosing.also == 0 and keys or nil
  end
  return keys
end

-- The group has had its turn: the next one is as much later as the job costs.
local function take_turn(line, group, cost)
  if group.turn > line.virtual_time then
    line.virtual_time = group.turn
  end
  line.filings = line.filings + 1
  local weight = type(cost) == 'number' and cost or 1
  group.turn, group.filed = line.virtual_time + weight * ONE, line.filings
end

-- What the run of a job says from now on, and its lease.
local function lease(row, keys)
  local run, head, now = row.run, step.head, step.now
  local fence, till = head.fences + 1, now + step.args.lease
  head.fences = fence
  run[STATE], run[ATTEMPTS_MADE], run[STARTED_AT] = ACTIVE, run[ATTEMPTS_MADE] + 1, now
  run[FENCE], run[WORKER], run[LEASE_UNTIL], run[KEYS] =
    fence, step.args.worker, till, #keys.list > 0 and keys.list or false
  if keys.guard < NEVER then
    run[GATE], run[GUARD] = false, keys.guard
  else
    run[GATE], run[GUARD] = nil, nil
  end
  row.dirty = true
  runs.add_lease(till, runs.lease_name(fence, 'j', row.id))
end

-- Move the job from its lane to active, charge every key, and give its group the next turn.
function start.start(line, lane, row)
  local group, counts, cost = lane.group, line.counts, row.head[COST]
  lanes.take(lane, row)
  group.size = group.size - 1
  take_turn(line, group, cost)
  local keys = charge_all(lane, row, cost)
  counts[WAITS], counts[ACTIVE] = counts[WAITS] - 1, counts[ACTIVE] + 1
  local started = line.started or {}
  line.started = started
  started[#started + 1] = late.start_record(row, step.now)
  if lane.jobs > 0 and lane.state == READY then
    lanes.make_ready(lane)
  end
  local own = lanes.meters(lane)
  for place = 1, #own do
    file_full(own[place])
  end
  turns.stand_again(line, group)
  if group.size == 0 then
    lanes.forget_if_idle(group)
  end
  lease(row, keys)
  local this = step.choosing
  if this.room then
    this.room = this.room - rows.cost_under(cost, '')
  end
  this.started[#this.started + 1] = row
end

-- Jobs that cost more than a limit allows since it was lowered can never start.
local function fail_misfits()
  for _, found in ipairs(step.choosing.misfits) do
    local row, text = found.row, "NeverFits: the job costs %.0f, but limit '%s' never allows more than %.0f"
    rows.more(row).error = format(text, found.cost, found.limit, found.most)
    row.more_dirty = true
    runs.end_job(row, FAILED)
    runs.note_failed(row)
  end
  step.choosing.misfits = {}
end

-- The first instant at which the limits that the worker brings along admit anything.
function start.also_opens_at()
  local at = 0
  for _, meter in ipairs(step.choosing.also) do
    at = math.max(at, meters.opens_at(meter, 1))
  end
  return at
end

-- One job from each queue in turn, until the slots are full or nobody may start.
function start.take_turns(asked)
  local waiting, this, slots = {}, step.choosing, step.args.slots
  for place, line in ipairs(asked) do
    waiting[place] = line
  end
  while #waiting > 0 and #this.started < slots do
    local still = {}
    for _, line in ipairs(waiting) do
      if #this.also > 0 and start.also_opens_at() > step.now then
        return
      end
      local row, lane = choosing.choose(line)
      if #this.misfits > 0 then
        fail_misfits()
      end
      if row then
        start.start(line, lane, row)
        still[#still + 1] = line
        if #this.started >= slots then
          return
        end
      elseif this.needs_room > 0 then
        return
      end
    end
    waiting = still
  end
end

-- A reservation lasts while its job is next in its lane and nothing but its size keeps it from starting.
local function still_reserves(line, meter, row)
  local lane = row.run[STATE] == WAITS and lines.lane_of(line, row)
  if not lane or step.now >= meter.reserved_deadline or lanes.head(lane) ~= row then
    return nil
  end
  if line.paused or lane.cls.paused or lane.state == PAUSED then
    return nil
  end
  for _, other in ipairs(lanes.all_meters(lane)) do
    local cost = rows.cost_under(row.head[COST], other.name)
    if meters.opens_at(other, cost) > step.now and not reserving.lacks_only_room(other, cost) then
      return nil
    end
  end
  return lane
end

local function is_mine(line, lane, all, row)
  local mine = false
  for _, queue in ipairs(step.args.queues) do
    mine = mine or queue == line.name
  end
  if not mine or #step.choosing.started >= step.args.slots then
    return false
  end
  mine = false
  for _, cls in ipairs(choosing.visible(line)) do
    mine = mine or cls == lane.cls
  end
  for _, meter in ipairs(all) do
    mine = mine and (not meter.reserved_by or meter.reserved_by == row.id)
  end
  return mine
end

local function give_up(meter)
  meter.reserved_by, meter.dirty = nil, true
  reserving.remove_reserved(meter)
  lanes.look_again_under(meter)
end

local function serve_job(meter, row)
  local line = lines.get(row.run[QUEUE])
  local lane = still_reserves(line, meter, row)
  if not lane then
    give_up(meter)
    return
  end
  local all = lanes.all_meters(lane)
  local costs = lanes.costs(row, all)
  for place, other in ipairs(all) do
    if not other.reserved_by and meters.opens_at(other, costs[place]) > step.now then
      reserving.reserve(other, row.id, costs[place])
    end
  end
  local opens = choosing.opens_at(all, costs)
  meter.reserved_until = opens > step.now and min(opens, meter.reserved_deadline) or meter.reserved_deadline
  meter.dirty = true
  if opens <= step.now and is_mine(line, lane, all, row) and choosing.consider(lane, row) then
    start.start(line, lane, row)
    wakes.all()
  end
end

-- Jobs that a limit is kept free for go first; reservations that no longer hold are given up.
function start.serve_reserved()
  local kept = {}
  for place, each in ipairs(step.head.reserved) do
    kept[place] = each
  end
  for _, each in ipairs(kept) do
    local name, group = each[1], each[2]
    local meter = meters.get(name, group ~= '' and group or nil)
    local holder = meter.reserved_by
    if holder and step.head.awaiting[holder] and step.now < meter.reserved_deadline then
      if meter.reserved_until <= step.now then
        meter.reserved_until, meter.dirty = meter.reserved_deadline, true
      end
    else
      local row = holder and rows.find(holder)
      if row then
        serve_job(meter, row)
      else
        give_up(meter)
      end
    end
  end
end

return start
