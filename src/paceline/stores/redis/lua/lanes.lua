-- Lanes: what a claim looks at instead of looking at jobs.
local classes = require('classes')
local commands = require('commands')
local constants = require('constants')
local groups = require('groups')
local lines = require('lines')
local meters = require('meters')
local records = require('records')
local rows = require('rows')
local step = require('step')
local turns = require('turns')
local call, to_bytes, from_bytes = redis.call, struct.pack, struct.unpack
local sub, max, min = string.sub, math.max, math.min
local call_many = commands.call_many
local NEVER, ONE = constants.NEVER, constants.ONE
local READY, BLOCKED, PARKED, PAUSED = constants.READY, constants.BLOCKED, constants.PARKED, constants.PAUSED
local ORDERS_FROM = constants.ORDERS_FROM
local TASK, GROUP, PRIORITY, COST = records.TASK, records.GROUP, records.PRIORITY, records.COST

local lanes = {}

-- What an order looks like inside a sorted set: the smaller, the earlier, also below zero.
function lanes.place(order, id)
  return to_bytes('>I8', order + ORDERS_FROM) .. id
end

local function touch(lane)
  lane.touched = true
  lane.group.dirty = true
end

-- filing

-- File the lane at its group's turn. Where it is filed is a bound from then on: turns only grow, and the group's
-- decides.
function lanes.make_ready(lane)
  lane.state = READY
  touch(lane)
  turns.enter(lane)
end

-- File the lane as blocked until an instant, or parked when only a finish can help.
function lanes.file_until(lane, till)
  touch(lane)
  if till >= NEVER then
    lane.state = PARKED
    return
  end
  lane.state, lane.till, lane.filed = BLOCKED, till, lane.group.filed
  lane.cls.blocked_from = min(lane.cls.blocked_from, till)
end

-- A key of this lane may have opened: the next claim decides.
function lanes.look_again(lane)
  if lane.jobs > 0 and (lane.state == PARKED or lane.state == BLOCKED) then
    lanes.make_ready(lane)
  end
end

-- Something under a key of this lane finished; true when the lane was waiting for that.
function lanes.unpark(lane)
  if lane.state ~= PARKED or lane.jobs == 0 then
    return false
  end
  lanes.make_ready(lane)
  return true
end

local function is_in(list, name)
  for place = 1, #list do
    if list[place] == name then
      return true
    end
  end
  return false
end

-- All lanes with waiting jobs under a group's key, in whatever queue they are, or in these only.
function lanes.under(meter, queues)
  local found = {}
  if not meter.group then
    return found
  end
  for queue in pairs(meter.queues) do
    local line = (not queues or is_in(queues, queue)) and lines.get(queue)
    for _, lane in pairs(line and groups.of_group(groups.get(line, meter.group)) or {}) do
      if lane.jobs > 0 and is_in(lane.cls.own, meter.name) then
        found[#found + 1] = lane
      end
    end
  end
  return found
end

function lanes.look_again_under(meter)
  for _, lane in ipairs(lanes.under(meter)) do
    lanes.look_again(lane)
  end
end

-- keys

-- The group's own keys of this lane.
function lanes.meters(lane)
  local own = lane.own
  if not own then
    own = {}
    if lane.group.id then
      for place, name in ipairs(lane.cls.own) do
        own[place] = meters.get(name, lane.group.id)
      end
    end
    lane.own = own
  end
  return own
end

-- All keys that a job of this lane is charged to: the shared ones of its class, then its group's own.
function lanes.all_meters(lane)
  local all = lane.all_meters
  if not all then
    all = {}
    for place, meter in ipairs(classes.shared(lane.cls)) do
      all[place] = meter
    end
    for _, meter in ipairs(lanes.meters(lane)) do
      all[#all + 1] = meter
    end
    lane.all_meters = all
  end
  return all
end

-- What a job takes from each of these keys.
function lanes.costs(row, all)
  local costs = {}
  for place, meter in ipairs(all) do
    costs[place] = rows.cost_under(row.head[COST], meter.name)
  end
  return costs
end

-- A lane that has jobs again is found under the keys of its group.
local function meet(lane)
  lane.own, lane.all_meters, lane.unit_keys = nil, nil, nil
  for _, meter in ipairs(lanes.meters(lane)) do
    if not meter.queues[lane.line.name] then
      meter.queues[lane.line.name] = true
      meter.dirty = true
    end
  end
end

local function part_from(lane)
  if not lane.group.id then
    return
  end
  for _, name in ipairs(lane.cls.own) do
    local meter, others = meters.find(name, lane.group.id), false
    if meter and lane.group.number > 1 then
      for _, other in pairs(groups.of_group(lane.group)) do
        others = others or (other ~= lane and other.jobs > 0 and is_in(other.cls.own, name))
      end
    end
    if meter and not others then
      meter.queues[lane.line.name] = nil
      meter.dirty = true
    end
  end
end

-- When the group's own limits admit a start.
function lanes.opens_at(lane, cost)
  local at = 0
  for _, meter in ipairs(lanes.meters(lane)) do
    local opens = meters.opens_at(meter, rows.cost_under(cost, meter.name))
    if opens > at then
      at = opens
    end
  end
  return at
end

-- jobs of a lane

-- Write what was put in and taken out, so that the store has the lane as it is; what was read is read again.
function lanes.sync(lane)
  if lane.added then
    call_many('ZADD', lane.key, lane.added)
    lane.added = nil
  end
  if lane.taken > 0 then
    call('ZREMRANGEBYRANK', lane.key, 0, lane.taken - 1)
    lane.taken = 0
  end
  lane.heads, lane.next_head = nil, 1
end

-- Read the places of the next jobs, so many.
local function read_places(lane, number)
  if lane.added then
    lanes.sync(lane)
  end
  lane.heads, lane.next_head = call('ZRANGE', lane.key, lane.taken, lane.taken + number - 1), 1
  return lane.heads
end

-- Read the heads of many lanes in one go, so many of each.
function lanes.read_heads(list, number)
  local ids = {}
  for place = 1, #list do
    local lane = list[place]
    if lane.jobs > 0 and not lane.heads then
      lane.stride = number
      local heads = read_places(lane, number)
      for index = 1, #heads do
        ids[#ids + 1] = sub(heads[index], 9)
      end
    end
  end
  rows.load(ids)
end

-- The next job of a lane that is not empty.
function lanes.head(lane)
  local heads = lane.heads
  if not heads or lane.next_head > #heads then
    -- Twice as many each time: a lone lane is read in few steps, a lane among many gives one job.
    lane.heads = nil
    lanes.read_heads({ lane }, min(max(lane.stride * 2, 1), 128))
    heads = lane.heads
  end
  local place = heads[lane.next_head]
  local row = step.rows[sub(place, 9)]
  row.place = place
  return row
end

-- Put a job into its place.
local function push(lane, row)
  if lane.heads then
    lanes.sync(lane)
  end
  if lane.jobs == 0 then
    lane.state = READY
    meet(lane)
  end
  lane.jobs = lane.jobs + 1
  lane.cls.waiting = lane.cls.waiting + 1
  touch(lane)
  local added = lane.added or {}
  lane.added = added
  added[#added + 1] = row.head[PRIORITY]
  added[#added + 1] = rows.place(row)
end

local function remove(lane, row)
  local place = rows.place(row)
  if lane.heads and lane.heads[lane.next_head] == place then
    lane.next_head, lane.taken = lane.next_head + 1, lane.taken + 1
  else
    lanes.sync(lane)
    call('ZREM', lane.key, place)
  end
  lane.jobs = lane.jobs - 1
  lane.cls.waiting = lane.cls.waiting - 1
  touch(lane)
  if lane.jobs == 0 then
    part_from(lane)
    lane.state = READY
  end
end

-- The priority and the order of the next job, without reading it where it was not read yet.
function lanes.head_place(group, cls)
  local lane = group.lanes[cls.id]
  if lane and lane.touched then
    local row = lanes.head(lane)
    return row.head[PRIORITY], rows.order_and_created(row) + ORDERS_FROM
  end
  local found = call('ZRANGE', groups.key(group.line, cls, group.field), 0, 0, 'WITHSCORES')
  return tonumber(found[2]), (from_bytes('>I8', found[1]))
end

-- Put a due job into its lane; a group that had nothing waiting joins behind everyone.
function lanes.file(line, row)
  local group = groups.get(line, row.head[GROUP] or '')
  if group.waiting == 0 then
    line.groups_waiting = line.groups_waiting and line.groups_waiting + 1
    line.filings = line.filings + 1
    group.turn, group.filed = max(group.turn, line.virtual_time + ONE), line.filings
  end
  group.waiting = group.waiting + 1
  group.dirty = true
  local lane = groups.of(line, classes.class_for(line, row.head[TASK]), group)
  push(lane, row)
  if line.paused_groups[group.field] then
    lane.state = PAUSED
  elseif lane.jobs == 1 then
    lanes.make_ready(lane)
  elseif lane.state == BLOCKED and lanes.head(lane) == row then
    -- A new head may fit where the old one did not.
    lanes.make_ready(lane)
  end
end

-- Take a waiting job out of its lane.
function lanes.take(lane, row)
  local line, waiting = lane.line, lane.group.waiting - 1
  remove(lane, row)
  lane.group.waiting = waiting
  if waiting == 0 then
    line.groups_waiting = line.groups_waiting and line.groups_waiting - 1
  end
end

function lanes.forget_if_idle(group)
  -- A group whose turn is not ahead of where it would join anyway is no different from a new one.
  if group.size == 0 and group.id and group.turn <= group.line.virtual_time + ONE then
    group.turn, group.filed, group.forgotten = 0, 0, true
    group.dirty = true
  end
end

-- Give every job of a lane to the class it belongs to now.
function lanes.move_out(lane)
  local line, group = lane.line, lane.group
  lanes.sync(lane)
  local ids = {}
  for place, member in ipairs(call('ZRANGE', lane.key, 0, -1)) do
    ids[place] = sub(member, 9)
  end
  rows.load(ids)
  call('DEL', lane.key)
  lane.jobs = 0
  part_from(lane)
  touch(lane)
  for _, id in ipairs(ids) do
    local row = step.rows[id]
    local new = groups.of(line, classes.class_for(line, row.head[TASK]), group)
    push(new, row)
    if line.paused_groups[group.field] then
      new.state = PAUSED
    else
      lanes.make_ready(new)
    end
  end
end

-- The class of a lane stands for other limits now.
function lanes.redefine(lane, own)
  local before = lane.cls.own
  if own then
    part_from(lane)
    lane.cls.own = own
    meet(lane)
    lane.cls.own = before
  end
  lane.all_meters, lane.unit_keys = nil, nil
  if lane.state ~= PAUSED then
    lanes.make_ready(lane)
  end
end

return lanes
