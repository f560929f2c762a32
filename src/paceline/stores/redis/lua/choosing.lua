-- The choice of the next job to start: whose turn it is, and whether all limits of the head of its lane admit it.
local constants = require('constants')
local lanes = require('lanes')
local late = require('late')
local lines = require('lines')
local meters = require('meters')
local reserving = require('reserving')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local turns = require('turns')
local wakes = require('wakes')
local format, max, min = string.format, math.max, math.min
local NEVER, ONE, READY, PAUSED = constants.NEVER, constants.ONE, constants.READY, constants.PAUSED

local function begin_choosing()
  step.choosing =
    { budget = 0, skipped = {}, misfits = {}, visible = {}, needs_room = 0, started = {}, also = {}, stuck = {} }
end

-- The classes of a queue whose jobs this worker can run and that are not paused.
local function visible(line)
  local found = step.choosing.visible[line.name]
  if not found then
    found = {}
    local number = step.args.tasks and line.tasksets[step.args.tasks]
    for _, cls in pairs(line.classes) do
      local known = not number
      for _, each in ipairs(cls.known_by) do
        known = known or each == number
      end
      if known and not cls.paused then
        found[#found + 1] = cls
      end
    end
    step.choosing.visible[line.name] = found
  end
  return found
end

local function opens_at(keys)
  local at = 0
  for _, pair in ipairs(keys) do
    local opens = meters.opens_at(pair[1], pair[2])
    if opens > at then
      at = opens
    end
  end
  return at
end

-- True when the group's own limits admit a start of cost 1 and none of them is kept for a bigger job.
local function admits_unit(lane)
  for _, meter in ipairs(lanes.meters(lane)) do
    if meter.reserved_by or meters.opens_at(meter, 1) > step.now then
      return false
    end
  end
  return true
end

local function is_reserved_by(keys, id)
  for _, pair in ipairs(keys) do
    if pair[1].reserved_by == id then
      return true
    end
  end
  return false
end

-- Only its size is in the way of this head: nobody else starts where it lacks room, for one window at most.
local function keep_room(lane, row, keys)
  if #step.head.reserved > 0 and is_reserved_by(keys, row.id) then
    -- Room is kept for it already: every claim looks at it first.
    lanes.file_until(lane, opens_at(keys))
    return
  end
  for _, pair in ipairs(keys) do
    if meters.opens_at(pair[1], pair[2]) > step.now then
      reserving.reserve(pair[1], row.id, pair[2])
    end
  end
  local own = lanes.opens_at(lane, row.cost)
  if own > step.now then
    lanes.file_until(lane, own)
  end
end

local function misfit(keys)
  for _, pair in ipairs(keys) do
    if pair[2] > meters.most(pair[1]) then
      return pair[1], pair[2]
    end
  end
end

-- Pass over a lane whose head can never start at this worker, for this claim.
local function skip(lane)
  step.choosing.skipped[#step.choosing.skipped + 1] = lane
  lanes.file_until(lane, NEVER)
  step.choosing.budget = step.choosing.budget - 1
  return nil
end

-- The limits that only the worker brings along, with what the job takes from each.
local function brought(row, keys)
  local found = {}
  for _, meter in ipairs(step.choosing.also) do
    local met = false
    for _, pair in ipairs(keys) do
      met = met or pair[1] == meter
    end
    if not met then
      found[#found + 1] = { meter, rows.cost_under(row.cost, meter.name) }
    end
  end
  return found
end

-- Whether the limits that only the worker brings along admit a job; those it meets itself decide as its own.
local function consider_brought(lane, row, keys)
  local till = 0
  for _, pair in ipairs(brought(row, keys)) do
    local meter, cost = pair[1], pair[2]
    if cost > meters.most(meter) then
      return skip(lane)
    end
    till = max(till, meters.opens_at(meter, cost))
    if meter.reserved_by and meter.reserved_by ~= row.id then
      till = max(till, meter.reserved_until)
    end
  end
  if till > step.now then
    step.choosing.stuck[lane.line.name] = till
    return false
  end
  return true
end

-- Whether this job starts: true, false (stop here), or nil (refused: it was filed where it belongs).
local function consider(lane, row)
  local keys = lanes.keys_for(lane, row)
  local closed_until = lanes.opens_at(lane, 1)
  if #step.head.reserved > 0 then
    for _, meter in ipairs(lanes.meters(lane)) do
      if meter.reserved_by and meter.reserved_by ~= row.id and meter.reserved_until > closed_until then
        closed_until = meter.reserved_until
      end
    end
  end
  if closed_until > step.now then
    -- Its group may start nothing at all now, whatever it costs and whoever asks.
    step.choosing.budget = step.choosing.budget - 1
    lanes.file_until(lane, closed_until)
    return nil
  end
  local private = rows.cost_under(row.cost, '')
  if step.args.most and private > step.args.most then
    return skip(lane)
  end
  if step.choosing.room and private > step.choosing.room then
    step.choosing.needs_room = private
    return false
  end
  if row.cost ~= 1 then
    local meter, cost = misfit(keys)
    if meter then
      lines.leave(lane.line, row)
      step.choosing.misfits[#step.choosing.misfits + 1] = { row, meter.name, cost, meters.most(meter) }
      step.choosing.budget = step.choosing.budget - 1
      return nil
    end
  end
  if #step.choosing.also > 0 then
    local verdict = consider_brought(lane, row, keys)
    if not verdict then
      return verdict
    end
  end
  if opens_at(keys) <= step.now then
    return true
  end
  step.choosing.budget = step.choosing.budget - 1
  keep_room(lane, row, keys)
  return nil
end

-- The next job to start, charged to nothing yet, with its lane; nil when nobody may start now.
local function choose(line)
  if line.paused then
    return nil
  end
  local plain = not step.choosing.room and #step.choosing.also == 0
  if not line.race then
    turns.begin(line, visible(line))
  end
  while step.choosing.budget > 0 do
    local best = turns.next(line)
    if not best then
      return nil
    end
    local row = lanes.head(best)
    if row.cost == 1 and plain and admits_unit(best) then
      return row, best
    end
    local verdict = consider(best, row)
    if not verdict and best.state == READY and best.jobs > 0 then
      turns.enter(best)
    end
    if verdict ~= nil then
      return verdict and row or nil, best
    end
  end
end

-- A start filled a group's key: file its lanes here and now. Other queues find out when they are asked.
local function file_full(meter)
  local till = meters.opens_at(meter, 1)
  if till > step.now then
    for _, lane in ipairs(lanes.under(meter, step.args.queues)) do
      if lane.state == READY then
        lanes.file_until(lane, till)
      end
    end
  end
end

-- Charge one key; `flat` is what the run remembers of it.
local function charge(row, meter, cost, flat)
  meters.charge(meter, row.id, cost)
  row.guard = min(row.guard, meter.guard)
  if #step.head.reserved > 0 and not meter.reserved_by then
    reserving.remove_reserved(meter)
  end
  local size = #flat
  flat[size + 1], flat[size + 2], flat[size + 3], flat[size + 4] = meter.name, meter.group or false, meter.epoch, cost
end

local function charge_also(row, keys, flat)
  for _, pair in ipairs(brought(row, keys)) do
    charge(row, pair[1], pair[2], flat)
  end
end

-- Move the job from its lane to active, charge every key, and give its group the next turn.
local function start(line, lane, row)
  local group, keys, flat = lane.group, lanes.keys_for(lane, row), {}
  row.gate, row.guard = 0, NEVER
  lanes.take(lane, row)
  group.size = group.size - 1
  if group.turn > line.virtual_time then
    line.virtual_time = group.turn
  end
  line.filings = line.filings + 1
  local weight = type(row.cost) == 'number' and row.cost or 1
  group.turn, group.filed = line.virtual_time + weight * ONE, line.filings
  for _, pair in ipairs(keys) do
    charge(row, pair[1], pair[2], flat)
  end
  if #step.choosing.also > 0 then
    charge_also(row, keys, flat)
  end
  line.counts[1], line.counts[3] = line.counts[1] - 1, line.counts[3] + 1
  line.started = line.started or {}
  line.started[#line.started + 1] = late.start_record(row, step.now)
  if lane.jobs > 0 and lane.state == READY then
    lanes.make_ready(lane)
  end
  for _, meter in ipairs(lanes.meters(lane)) do
    file_full(meter)
  end
  lanes.forget_if_idle(group)
  step.head.fences = step.head.fences + 1
  row.state, row.keys, row.dirty = 3, #flat > 0 and flat or nil, true
  row.started_at, row.attempts_made, row.fence = step.now, row.attempts_made + 1, step.head.fences
  row.worker, row.lease_until = step.args.worker, step.now + step.args.lease
  runs.add_lease(row.lease_until, runs.lease_name(row.fence, 'j', row.id))
  if step.choosing.room then
    step.choosing.room = step.choosing.room - rows.cost_under(row.cost, '')
  end
  step.choosing.started[#step.choosing.started + 1] = row
end

-- Jobs that cost more than a limit allows since it was lowered can never start.
local function fail_misfits()
  for _, found in ipairs(step.choosing.misfits) do
    local row = found[1]
    rows.more(row).error =
      format("NeverFits: the job costs %.0f, but limit '%s' never allows more than %.0f", found[3], found[2], found[4])
    row.more_dirty = true
    runs.end_job(row, 5)
    runs.note_failed(row)
  end
  step.choosing.misfits = {}
end

-- A reservation lasts while its job is next in its lane and nothing but its size keeps it from starting.
local function still_reserves(line, meter, row)
  local lane = row.state == 1 and lines.lane_of(line, row)
  if not lane or step.now >= meter.reserved_deadline or lanes.head(lane) ~= row then
    return nil
  end
  if line.paused or lane.cls.paused or lane.state == PAUSED then
    return nil
  end
  for _, pair in ipairs(lanes.keys_for(lane, row)) do
    if meters.opens_at(pair[1], pair[2]) > step.now and not reserving.lacks_only_room(pair[1], pair[2]) then
      return nil
    end
  end
  return lane
end

local function is_mine(line, lane, keys, row)
  local mine = false
  for _, queue in ipairs(step.args.queues) do
    mine = mine or queue == line.name
  end
  if not mine or #step.choosing.started >= step.args.slots then
    return false
  end
  mine = false
  for _, cls in ipairs(visible(line)) do
    mine = mine or cls == lane.cls
  end
  for _, pair in ipairs(keys) do
    mine = mine and (not pair[1].reserved_by or pair[1].reserved_by == row.id)
  end
  return mine
end

local function give_up(meter)
  meter.reserved_by, meter.dirty = nil, true
  reserving.remove_reserved(meter)
  lanes.look_again_under(meter)
end

local function serve_job(meter, row)
  local line = lines.get(row.queue)
  local lane = still_reserves(line, meter, row)
  if not lane then
    give_up(meter)
    return
  end
  local keys = lanes.keys_for(lane, row)
  for _, pair in ipairs(keys) do
    if not pair[1].reserved_by and meters.opens_at(pair[1], pair[2]) > step.now then
      reserving.reserve(pair[1], row.id, pair[2])
    end
  end
  local opens = opens_at(keys)
  meter.reserved_until = opens > step.now and min(opens, meter.reserved_deadline) or meter.reserved_deadline
  meter.dirty = true
  if opens <= step.now and is_mine(line, lane, keys, row) and consider(lane, row) then
    start(line, lane, row)
    wakes.all()
  end
end

-- Jobs that a limit is kept free for go first; reservations that no longer hold are given up.
local function serve_reserved()
  local kept = {}
  for place, each in ipairs(step.head.reserved) do
    kept[place] = each
  end
  for _, each in ipairs(kept) do
    local meter = meters.get(each[1], each[2] ~= '' and each[2] or nil)
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

local function also_opens_at()
  local at = 0
  for _, meter in ipairs(step.choosing.also) do
    at = max(at, meters.opens_at(meter, 1))
  end
  return at
end

-- One job from each queue in turn, until the slots are full or nobody may start.
local function take_turns(asked)
  local waiting = {}
  for place, line in ipairs(asked) do
    waiting[place] = line
  end
  while #waiting > 0 and #step.choosing.started < step.args.slots do
    local still = {}
    for _, line in ipairs(waiting) do
      if #step.choosing.also > 0 and also_opens_at() > step.now then
        return
      end
      local row, lane = choose(line)
      if #step.choosing.misfits > 0 then
        fail_misfits()
      end
      if row then
        start(line, lane, row)
        still[#still + 1] = line
        if #step.choosing.started >= step.args.slots then
          return
        end
      elseif step.choosing.needs_room > 0 then
        return
      end
    end
    waiting = still
  end
end

local function await(meter, queue)
  if not meter.awaited[queue] then
    meter.awaited[queue], meter.dirty = true, true
  end
end

-- The earliest instant at which a claim could give more than this one did, as far as time decides.
local function next_at(line)
  local at = lines.next_due(line)
  if line.paused then
    return at
  end
  for _, cls in ipairs(visible(line)) do
    if cls.waiting > 0 then
      local shared = lines.opens_at(cls)
      if shared >= NEVER then
        for _, meter in ipairs(lines.shared(cls)) do
          await(meter, line.name)
        end
      elseif turns.has_ready(line, cls) then
        at = min(at, shared)
      else
        at = min(at, max(shared, lanes.next_blocked(line, cls)))
      end
    end
  end
  return at
end

-- When a claim could give more: a limit opens, a delay ends, a lease ends, an override ends.
local function ask_again_at(asked, idle)
  local at = min(runs.next_lease_end(), step.head.next_expiry)
  local also, stuck = also_opens_at(), 0
  for _, till in pairs(step.choosing.stuck) do
    stuck = max(stuck, till)
  end
  if max(also, stuck) >= NEVER then
    for _, meter in ipairs(step.choosing.also) do
      for _, line in ipairs(asked) do
        await(meter, line.name)
      end
    end
  end
  if not idle then
    return also <= step.now and min(at, step.now) or min(at, also)
  end
  lanes.save()
  for _, line in ipairs(asked) do
    at = min(at, max(next_at(line), also, step.choosing.stuck[line.name] or 0))
  end
  -- Nothing is claimable now, so an instant that has passed can only be news that came with this very claim.
  return max(at, step.now)
end

-- Work is left that this claim had no slots for: one more sleeper may look.
local function pass_on(asked)
  lanes.save()
  for _, line in ipairs(asked) do
    for _, cls in pairs(line.classes) do
      if cls.waiting > 0 and turns.has_ready(line, cls) then
        wakes.queue(line.name)
        break
      end
    end
  end
end

return {
  begin_choosing = begin_choosing,
  serve_reserved = serve_reserved,
  take_turns = take_turns,
  ask_again_at = ask_again_at,
  pass_on = pass_on,
}
