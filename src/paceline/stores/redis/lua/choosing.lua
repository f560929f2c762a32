-- The choice of the next job to start: whose turn it is, and whether all limits of the head of its lane admit it.
local constants = require('constants')
local lanes = require('lanes')
local lines = require('lines')
local meters = require('meters')
local records = require('records')
local reserving = require('reserving')
local room = require('room')
local rows = require('rows')
local step = require('step')
local turns = require('turns')
local max = math.max
local NEVER, READY = constants.NEVER, constants.READY
local COST = records.COST

local choosing = {}

-- One claim on its way: what it may still move and take, and what it learned about waiting.
function choosing.begin(most)
  step.choosing = {
    budget = most,
    room = step.args.room,
    needs_room = 0,
    started = {},
    skipped = {},
    misfits = {},
    visible = {},
    also = {}, -- the limits that only the worker brings along
    stuck = {}, -- queues whose next job waits for one of those, and until when
  }
end

-- The classes of a queue whose jobs this worker can run and that are not paused.
function choosing.visible(line)
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

-- When all of these keys admit a start of these costs.
function choosing.opens_at(all, costs)
  local at = 0
  for place, meter in ipairs(all) do
    local opens = meters.opens_at(meter, costs[place])
    if opens > at then
      at = opens
    end
  end
  return at
end

-- True when the group's own limits admit a start of cost 1 and none of them is kept for a bigger job.
local function admits_unit(lane)
  local own = lanes.meters(lane)
  for place = 1, #own do
    local meter = own[place]
    if meter.reserved_by or not room.admits_unit(meter) then
      return false
    end
  end
  return true
end

local function is_reserved_by(all, id)
  for _, meter in ipairs(all) do
    if meter.reserved_by == id then
      return true
    end
  end
  return false
end

-- Only its size is in the way of this head: nobody else starts where it lacks room, for one window at most.
local function keep_room(lane, row, all, costs)
  if #step.head.reserved > 0 and is_reserved_by(all, row.id) then
    -- Room is kept for it already: every claim looks at it first.
    lanes.file_until(lane, choosing.opens_at(all, costs))
    return
  end
  for place, meter in ipairs(all) do
    if meters.opens_at(meter, costs[place]) > step.now then
      reserving.reserve(meter, row.id, costs[place])
    end
  end
  local own = lanes.opens_at(lane, row.head[COST])
  if own > step.now then
    lanes.file_until(lane, own)
  end
end

local function misfit(all, costs)
  for place, meter in ipairs(all) do
    if costs[place] > meters.most(meter) then
      return meter, costs[place]
    end
  end
end

-- Pass over a lane whose head can never start at this worker, for this claim.
local function skip(lane)
  local skipped = step.choosing.skipped
  skipped[#skipped + 1] = lane
  lanes.file_until(lane, NEVER)
  step.choosing.budget = step.choosing.budget - 1
  return nil
end

-- The limits that only the worker brings along and that the job does not meet itself.
function choosing.brought(all)
  local found = {}
  for _, meter in ipairs(step.choosing.also) do
    local met = false
    for _, its in ipairs(all) do
      met = met or its == meter
    end
    if not met then
      found[#found + 1] = meter
    end
  end
  return found
end

-- Whether the limits that only the worker brings along admit a job; those it meets itself decide as its own.
local function consider_brought(lane, row, all)
  local till = 0
  for _, meter in ipairs(choosing.brought(all)) do
    local cost = rows.cost_under(row.head[COST], meter.name)
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

-- Until when its group may start nothing at all, whatever it costs and whoever asks.
local function closed_until(lane, row)
  local till = lanes.opens_at(lane, 1)
  if #step.head.reserved > 0 then
    for _, meter in ipairs(lanes.meters(lane)) do
      if meter.reserved_by and meter.reserved_by ~= row.id and meter.reserved_until > till then
        till = meter.reserved_until
      end
    end
  end
  return till
end

-- Whether this job starts: true, false (stop here), or nil (refused: it was filed where it belongs).
function choosing.consider(lane, row)
  local this, all = step.choosing, lanes.all_meters(lane)
  local costs, till = lanes.costs(row, all), closed_until(lane, row)
  if till > step.now then
    this.budget = this.budget - 1
    lanes.file_until(lane, till)
    return nil
  end
  local private = rows.cost_under(row.head[COST], '')
  if step.args.most and private > step.args.most then
    return skip(lane)
  end
  if this.room and private > this.room then
    this.needs_room = private
    return false
  end
  local meter, cost = misfit(all, costs)
  if meter then
    lines.leave(lane.line, row)
    this.misfits[#this.misfits + 1] = { row = row, limit = meter.name, cost = cost, most = meters.most(meter) }
    this.budget = this.budget - 1
    return nil
  end
  if #this.also > 0 then
    local verdict = consider_brought(lane, row, all)
    if not verdict then
      return verdict
    end
  end
  if choosing.opens_at(all, costs) <= step.now then
    return true
  end
  this.budget = this.budget - 1
  keep_room(lane, row, all, costs)
  return nil
end

-- The next job to start, charged to nothing yet, with its lane; nil when nobody may start now.
function choosing.choose(line)
  if line.paused then
    return nil
  end
  local this = step.choosing
  local plain = not this.room and #this.also == 0
  if not line.race then
    turns.begin(line, choosing.visible(line))
  end
  while this.budget > 0 do
    local best = turns.next(line)
    if not best then
      return nil
    end
    local row = lanes.head(best)
    if row.head[COST] == 1 and plain and admits_unit(best) then
      return row, best
    end
    local verdict = choosing.consider(best, row)
    if not verdict then
      if best.state == READY and best.jobs > 0 then
        turns.enter(best)
      end
      turns.stand_again(line, best.group)
    end
    if verdict ~= nil then
      return verdict and row or nil, best
    end
  end
end

return choosing
