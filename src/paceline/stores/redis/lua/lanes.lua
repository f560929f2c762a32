-- Groups and lanes of a queue: what a claim looks at instead of looking at jobs.
-- A group is kept as {turn, filed, waiting, size} and, for each lane, {class, state, until, filed, jobs, ready as}.
-- A group that has nothing to start but a turn ahead of the others rests: `prune` forgets it when the others caught up.
local commands = require('commands')
local constants = require('constants')
local lines = require('lines')
local meters = require('meters')
local rows = require('rows')
local step = require('step')
local turns = require('turns')
local call, pack, unpack_one, to_bytes = redis.call, cmsgpack.pack, cmsgpack.unpack, struct.pack
local from_bytes, format, sub, max, min = struct.unpack, string.format, string.sub, math.max, math.min
local call_many, read_many = commands.call_many, commands.read_many
local SEP, NEVER, ONE = constants.SEP, constants.NEVER, constants.ONE
local READY, BLOCKED, PARKED, PAUSED = constants.READY, constants.BLOCKED, constants.PARKED, constants.PAUSED
local ORDERS_FROM = constants.ORDERS_FROM

local lanes = {}

local function in_class(what, line, cls)
  return step.prefix .. what .. SEP .. line.name .. SEP .. cls.id
end

local function place_of(filed, field)
  return to_bytes('>I8', filed) .. field
end

function lanes.key(line, cls, field)
  return step.prefix .. 'lane' .. SEP .. line.name .. SEP .. cls.id .. SEP .. field
end

-- What an order looks like inside a sorted set: the smaller, the earlier, also below zero.
function lanes.place(order, id)
  return to_bytes('>I8', order + ORDERS_FROM) .. id
end

local function new_lane(line, cls, group)
  return {
    line = line,
    cls = cls,
    group = group,
    key = lanes.key(line, cls, group.field),
    state = READY,
    till = 0,
    filed = 0,
    jobs = 0,
    added = {},
    taken = {},
    was_blocked = 0, -- how it is filed in the store: 0 where it is not
    was_till = 0,
    was_ready = 0,
  }
end

local function decode_group(line, field, blob)
  local record = blob and unpack_one(blob) or { 0, 0, 0, 0 }
  return {
    field = field,
    id = field ~= '' and field or nil,
    line = line,
    record = record, -- as it stands in the store; a lane is made of it when it is needed
    lanes = {},
    turn = record[1],
    filed = record[2],
    waiting = record[3],
    size = record[4],
    was_idle = blob and record[4] == 0 and field ~= '' or false,
  }
end

-- Where each lane stands in the record of its group, by class.
local function places_of(group)
  if not group.places then
    group.places = {}
    for place = 5, #group.record, 6 do
      group.places[group.record[place]] = place
    end
  end
  return group.places
end

-- The lane of a class and a group if it has waiting jobs, or had some in this step.
function lanes.find(group, cls)
  local lane = group.lanes[cls.id]
  if lane then
    return lane
  end
  local record, place = group.record, places_of(group)[cls.id]
  if not place then
    return nil
  end
  lane = new_lane(group.line, cls, group)
  lane.state, lane.till, lane.filed = record[place + 1], record[place + 2], record[place + 3]
  lane.jobs, lane.was_ready = record[place + 4], record[place + 5]
  if lane.state == BLOCKED then
    lane.was_blocked, lane.was_till = lane.filed, lane.till
  end
  lane.was_parked = lane.state == PARKED
  group.lanes[cls.id] = lane
  return lane
end

-- All lanes of a group, by class.
function lanes.of_group(group)
  for id in pairs(places_of(group)) do
    lanes.find(group, group.line.classes[id])
  end
  return group.lanes
end

-- Write a lane into the record of its group, or out of it when it is empty.
local function put_into_record(group, lane)
  local record, places, id = group.record, places_of(group), lane.cls.id
  local place = places[id]
  if lane.jobs > 0 then
    place = place or #record + 1
    places[id] = place
    record[place], record[place + 1], record[place + 2] = id, lane.state, lane.till
    record[place + 3], record[place + 4], record[place + 5] = lane.filed, lane.jobs, lane.was_ready
  elseif place then
    -- The last one takes its place.
    local last = #record - 5
    places[record[last]] = place
    places[id] = nil
    for field = 5, 0, -1 do
      record[place + field] = record[last + field]
      record[last + field] = nil
    end
  end
end

function lanes.load_groups(line, fields)
  local missing = {}
  for _, field in ipairs(fields) do
    if not line.groups[field] then
      missing[#missing + 1] = field
    end
  end
  if #missing > 0 then
    local blobs = read_many('HMGET', step.prefix .. 'groups' .. SEP .. line.name, missing)
    for place, field in ipairs(missing) do
      line.groups[field] = decode_group(line, field, blobs[place])
    end
  end
end

function lanes.group(line, field)
  local group = line.groups[field]
  if not group then
    group = decode_group(line, field, call('HGET', step.prefix .. 'groups' .. SEP .. line.name, field))
    line.groups[field] = group
  end
  return group
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
  for _, each in ipairs(list) do
    if each == name then
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
    for _, lane in pairs(line and lanes.of_group(lanes.group(line, meter.group)) or {}) do
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
  if not lane.own then
    lane.own = {}
    if lane.group.id then
      for place, name in ipairs(lane.cls.own) do
        lane.own[place] = meters.get(name, lane.group.id)
      end
    end
  end
  return lane.own
end

local function meet(lane)
  lane.own, lane.unit_keys = nil, nil
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
    for _, other in pairs(lanes.of_group(lane.group)) do
      others = others or (other ~= lane and other.jobs > 0 and is_in(other.cls.own, name))
    end
    if meter and not others then
      meter.queues[lane.line.name] = nil
      meter.dirty = true
    end
  end
end

-- The keys that a job of this lane is charged to, with what it takes from each: {meter, cost}.
function lanes.keys_for(lane, row)
  if not lane.unit_keys then
    local keys = {}
    for _, meter in ipairs(lines.shared(lane.cls)) do
      keys[#keys + 1] = { meter, 1 }
    end
    for _, meter in ipairs(lanes.meters(lane)) do
      keys[#keys + 1] = { meter, 1 }
    end
    lane.unit_keys = keys
  end
  if row.cost == 1 then
    return lane.unit_keys
  end
  local keys = {}
  for place, pair in ipairs(lane.unit_keys) do
    keys[place] = { pair[1], rows.cost_under(row.cost, pair[1].name) }
  end
  return keys
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

-- Write what was put in and taken out, so that the store has the lane as it is.
local function sync(lane)
  if #lane.added > 0 then
    call_many('ZADD', lane.key, lane.added)
    lane.added = {}
  end
  if #lane.taken > 0 then
    call_many('ZREM', lane.key, lane.taken)
    lane.taken = {}
  end
  lane.heads, lane.next_head = nil, nil
end

-- The next job of a lane that is not empty.
function lanes.head(lane)
  if not lane.heads or lane.next_head > #lane.heads then
    if #lane.added > 0 then
      sync(lane)
    end
    -- Twice as many each time: a lone lane is read in few steps, a lane among many gives one job.
    lane.step = min((lane.step or 0.5) * 2, 128)
    local from = #lane.taken
    lane.heads = call('ZRANGE', lane.key, from, from + lane.step - 1)
    lane.next_head = 1
    local ids = {}
    for place, member in ipairs(lane.heads) do
      ids[place] = sub(member, 9)
    end
    rows.load(ids)
    for place, id in ipairs(ids) do
      step.rows[id].place = lane.heads[place]
    end
  end
  return step.rows[sub(lane.heads[lane.next_head], 9)]
end

-- Put a job into its place.
local function push(lane, row)
  if lane.heads then
    sync(lane)
  end
  if lane.jobs == 0 then
    lane.state = READY
    meet(lane)
  end
  lane.jobs = lane.jobs + 1
  lane.cls.waiting = lane.cls.waiting + 1
  touch(lane)
  lane.added[#lane.added + 1] = row.priority
  lane.added[#lane.added + 1] = rows.place(row)
end

local function remove(lane, row)
  local place = rows.place(row)
  if lane.heads and lane.heads[lane.next_head] == place then
    lane.next_head = lane.next_head + 1
    lane.taken[#lane.taken + 1] = place
  else
    sync(lane)
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
    return row.priority, row.order + ORDERS_FROM
  end
  local found = call('ZRANGE', lanes.key(group.line, cls, group.field), 0, 0, 'WITHSCORES')
  return tonumber(found[2]), (from_bytes('>I8', found[1]))
end

function lanes.of(line, cls, group)
  local lane = lanes.find(group, cls)
  if not lane then
    lane = new_lane(line, cls, group)
    group.lanes[cls.id] = lane
  end
  return lane
end

-- Put a due job into its lane; a group that had nothing waiting joins behind everyone.
function lanes.file(line, row)
  local group = lanes.group(line, row.group or '')
  if group.waiting == 0 then
    line.filings = line.filings + 1
    group.turn, group.filed = max(group.turn, line.virtual_time + ONE), line.filings
  end
  group.waiting = group.waiting + 1
  group.dirty = true
  local lane = lanes.of(line, lines.class_for(line, row.task), group)
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
  remove(lane, row)
  lane.group.waiting = lane.group.waiting - 1
  lane.group.dirty = true
end

function lanes.forget_if_idle(group)
  -- A group whose turn is not ahead of where it would join anyway is no different from a new one.
  if group.size == 0 and group.id and group.turn <= group.line.virtual_time + ONE then
    group.turn, group.filed, group.forgotten = 0, 0, true
    group.dirty = true
  end
end

-- choosing

-- When the first blocked lane of a class opens, after this instant; only as far as lanes are saved.
local function read_next_blocked(line, cls, after)
  local from = after and format('(%.0f', after) or '-inf'
  local found = call('ZRANGEBYSCORE', in_class('blocked', line, cls), from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  cls.blocked_from = found[2] and tonumber(found[2]) or NEVER
end

-- File lanes whose time has come as ready, at most so many; returns how many.
function lanes.unblock_due(line, cls, budget)
  local moved = 0
  if budget <= 0 then
    return 0
  end
  local found =
    call('ZRANGEBYSCORE', in_class('blocked', line, cls), '-inf', format('%.0f', step.now), 'LIMIT', 0, budget)
  local fields = {}
  for place, member in ipairs(found) do
    fields[place] = sub(member, 9)
  end
  lanes.load_groups(line, fields)
  for _, field in ipairs(fields) do
    local lane = lanes.find(line.groups[field], cls)
    if lane and lane.state == BLOCKED and lane.till <= step.now and lane.jobs > 0 then
      lanes.make_ready(lane)
      moved = moved + 1
    end
  end
  if #found < budget then
    read_next_blocked(line, cls, step.now)
  end
  return moved
end

-- When the first blocked lane of a class opens; only after `lanes.save()`.
function lanes.next_blocked(line, cls)
  if cls.blocked_from < NEVER then
    read_next_blocked(line, cls)
  end
  return cls.blocked_from
end

-- reading and moving whole lanes

-- Every lane of a class that has waiting jobs; only after `lanes.save()`.
function lanes.all(line, cls)
  local fields = {}
  for _, what in ipairs({ 'ready', 'blocked' }) do
    for _, member in ipairs(call('ZRANGE', in_class(what, line, cls), 0, -1)) do
      fields[#fields + 1] = sub(member, 9)
    end
  end
  for _, field in ipairs(call('SMEMBERS', in_class('parked', line, cls))) do
    fields[#fields + 1] = field
  end
  for field in pairs(line.paused_groups) do
    fields[#fields + 1] = field
  end
  lanes.load_groups(line, fields)
  local found, seen = {}, {}
  for _, field in ipairs(fields) do
    local lane = lanes.find(line.groups[field], cls)
    if lane and lane.jobs > 0 and not seen[field] then
      seen[field] = true
      found[#found + 1] = lane
    end
  end
  return found
end

-- The ids of a lane's jobs, best first.
function lanes.ids(lane)
  sync(lane)
  local ids = {}
  for place, member in ipairs(call('ZRANGE', lane.key, 0, -1)) do
    ids[place] = sub(member, 9)
  end
  return ids
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
  lane.unit_keys = nil
  if lane.state ~= PAUSED then
    lanes.make_ready(lane)
  end
end

-- Give every job of a lane to the class it belongs to now.
function lanes.move_out(lane)
  local line, group = lane.line, lane.group
  local ids = lanes.ids(lane)
  rows.load(ids)
  call('DEL', lane.key)
  lane.jobs = 0
  part_from(lane)
  touch(lane)
  for _, id in ipairs(ids) do
    local row = step.rows[id]
    local new = lanes.of(line, lines.class_for(line, row.task), group)
    push(new, row)
    if line.paused_groups[group.field] then
      new.state = PAUSED
    else
      lanes.make_ready(new)
    end
  end
end

local function note_filing(lane, changes)
  local cls, field = lane.cls, lane.group.field
  local ready = lane.jobs > 0 and lane.state == READY and lane.group.filed or 0
  local blocked = lane.jobs > 0 and lane.state == BLOCKED and lane.filed or 0
  local parked = lane.jobs > 0 and lane.state == PARKED
  if
    lane.was_ready == ready
    and lane.was_blocked == blocked
    and (blocked == 0 or lane.was_till == lane.till)
    and (lane.was_parked or false) == parked
  then
    return
  end
  local into = changes[cls]
  if not into then
    into =
      { line = lane.line, ready = {}, not_ready = {}, blocked = {}, not_blocked = {}, parked = {}, not_parked = {} }
    changes[cls] = into
  end
  if lane.was_ready ~= ready then
    if lane.was_ready > 0 then
      into.not_ready[#into.not_ready + 1] = place_of(lane.was_ready, field)
    end
    if ready > 0 then
      into.ready[#into.ready + 1] = format('%.0f', lane.group.turn)
      into.ready[#into.ready + 1] = place_of(ready, field)
    end
    lane.was_ready = ready
  end
  if lane.was_blocked ~= blocked or (blocked > 0 and lane.was_till ~= lane.till) then
    if lane.was_blocked > 0 and lane.was_blocked ~= blocked then
      into.not_blocked[#into.not_blocked + 1] = place_of(lane.was_blocked, field)
    end
    if blocked > 0 then
      into.blocked[#into.blocked + 1] = format('%.0f', lane.till)
      into.blocked[#into.blocked + 1] = place_of(blocked, field)
    end
    lane.was_blocked, lane.was_till = blocked, lane.till
  end
  if (lane.was_parked or false) ~= parked then
    local list = parked and into.parked or into.not_parked
    list[#list + 1] = field
    lane.was_parked = parked
  end
end

local function save_group(group, changes)
  local record = group.record
  record[1], record[2], record[3], record[4] = group.turn, group.filed, group.waiting, group.size
  for _, lane in pairs(group.lanes) do
    sync(lane)
    if lane.touched then
      note_filing(lane, changes)
      put_into_record(group, lane)
      lane.touched = false
      turns.forget(group.line, lane.cls)
    end
  end
  group.dirty = false
  return record
end

-- Write all groups and how their lanes are filed; what was read ahead is read anew after this.
function lanes.save()
  local changes = {}
  for _, line in pairs(step.lines) do
    local kept, gone, idle, not_idle
    for field, group in pairs(line and line.groups or {}) do
      if group.dirty then
        kept, gone, idle, not_idle = kept or {}, gone or {}, idle or {}, not_idle or {}
        local record = save_group(group, changes)
        if group.forgotten and group.size == 0 then
          gone[#gone + 1] = field
        else
          kept[#kept + 1] = field
          kept[#kept + 1] = pack(record)
        end
        local is_idle = group.size == 0 and group.id ~= nil and not group.forgotten
        if is_idle ~= (group.was_idle or false) then
          local list = is_idle and idle or not_idle
          list[#list + 1] = field
          group.was_idle = is_idle
        end
        group.forgotten = false
      end
    end
    if kept then
      line.race = nil
      local key = step.prefix .. 'groups' .. SEP .. line.name
      call_many('HSET', key, kept)
      call_many('HDEL', key, gone)
      key = step.prefix .. 'resting' .. SEP .. line.name
      call_many('SADD', key, idle)
      call_many('SREM', key, not_idle)
    end
  end
  for cls, into in pairs(changes) do
    call_many('ZREM', in_class('ready', into.line, cls), into.not_ready)
    call_many('ZADD', in_class('ready', into.line, cls), into.ready)
    call_many('ZREM', in_class('blocked', into.line, cls), into.not_blocked)
    call_many('ZADD', in_class('blocked', into.line, cls), into.blocked)
    call_many('SREM', in_class('parked', into.line, cls), into.not_parked)
    call_many('SADD', in_class('parked', into.line, cls), into.parked)
  end
end

return lanes
