-- The groups of a queue, and their lanes as objects of a step.
-- A group is kept as {turn, filed, waiting, size} and, for each lane, {class, state, till, filed, jobs, ready as}.
-- A group that has nothing to start but a turn ahead of the others rests: `prune` forgets it when the others caught up.
local commands = require('commands')
local constants = require('constants')
local step = require('step')
local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
local read_many = commands.read_many
local SEP, READY, BLOCKED, PARKED = constants.SEP, constants.READY, constants.BLOCKED, constants.PARKED
local TURN, FILED, WAITING, SIZE = 1, 2, 3, 4 -- of the record of a group
local FIRST_LANE, LANE_SIZE = 5, 6
local LANE_STATE, LANE_TILL, LANE_FILED, LANE_JOBS, LANE_READY = 1, 2, 3, 4, 5 -- of a lane in it, after its class

local groups = {}

function groups.key(line, cls, field)
  return step.prefix .. 'lane' .. SEP .. line.name .. SEP .. cls.id .. SEP .. field
end

local function new_lane(line, cls, group)
  return {
    line = line,
    cls = cls,
    group = group,
    key = groups.key(line, cls, group.field),
    state = READY,
    till = 0,
    filed = 0,
    jobs = 0,
    touched = false,
    added = nil, -- jobs to write: priority, place, ...
    taken = 0, -- so many from its head are gone
    heads = nil, -- what was read of it: places, and which is next
    next_head = 1,
    stride = 0,
    own = nil,
    all_meters = nil,
    unit_keys = nil,
    entry = nil, -- how it stands in the race
    popped = nil,
    was_ready = 0, -- how it is filed in the store: 0 where it is not
    was_blocked = 0,
    was_till = 0,
    was_parked = false,
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
    number = (#record - SIZE) / LANE_SIZE, -- of its lanes
    places = nil,
    turn = record[TURN],
    filed = record[FILED],
    waiting = record[WAITING],
    size = record[SIZE],
    dirty = false,
    forgotten = false,
    stands = false,
    standing = nil,
    was_idle = blob and record[SIZE] == 0 and field ~= '' or false,
  }
end

-- Where each lane stands in the record of its group, by class.
local function places_of(group)
  if not group.places then
    group.places = {}
    for place = FIRST_LANE, #group.record, LANE_SIZE do
      group.places[group.record[place]] = place
    end
  end
  return group.places
end

-- The lane of a class and a group if it has waiting jobs, or had some in this step.
function groups.find(group, cls)
  local lane = group.lanes[cls.id]
  if lane then
    return lane
  end
  local record, place = group.record, FIRST_LANE
  if record[FIRST_LANE] ~= cls.id then
    place = places_of(group)[cls.id]
    if not place then
      return nil
    end
  end
  lane = new_lane(group.line, cls, group)
  lane.state, lane.till, lane.filed = record[place + LANE_STATE], record[place + LANE_TILL], record[place + LANE_FILED]
  lane.jobs, lane.was_ready = record[place + LANE_JOBS], record[place + LANE_READY]
  if lane.state == BLOCKED then
    lane.was_blocked, lane.was_till = lane.filed, lane.till
  end
  lane.was_parked = lane.state == PARKED
  group.lanes[cls.id] = lane
  return lane
end

-- All lanes of a group, by class.
function groups.of_group(group)
  for id in pairs(places_of(group)) do
    groups.find(group, group.line.classes[id])
  end
  return group.lanes
end

-- The lane of a class and a group, made when first needed.
function groups.of(line, cls, group)
  local lane = groups.find(group, cls)
  if not lane then
    lane = new_lane(line, cls, group)
    group.lanes[cls.id], group.number = lane, group.number + 1
  end
  return lane
end

-- Write a lane into the record of its group, or out of it when it is empty.
function groups.put_into_record(group, lane)
  local record, places, id = group.record, places_of(group), lane.cls.id
  local place = places[id]
  if lane.jobs > 0 then
    place = place or #record + 1
    places[id] = place
    record[place], record[place + LANE_STATE], record[place + LANE_TILL] = id, lane.state, lane.till
    record[place + LANE_FILED], record[place + LANE_JOBS], record[place + LANE_READY] =
      lane.filed, lane.jobs, lane.was_ready
  elseif place then
    -- The last one takes its place.
    local last = #record - LANE_SIZE + 1
    places[record[last]] = place
    places[id] = nil
    for field = LANE_SIZE - 1, 0, -1 do
      record[place + field] = record[last + field]
      record[last + field] = nil
    end
  end
end

function groups.load(line, fields)
  local held, missing = line.groups, {}
  for place = 1, #fields do
    if not held[fields[place]] then
      missing[#missing + 1] = fields[place]
    end
  end
  if #missing > 0 then
    local blobs = read_many('HMGET', step.prefix .. 'groups' .. SEP .. line.name, missing)
    for place = 1, #missing do
      held[missing[place]] = decode_group(line, missing[place], blobs[place])
    end
  end
end

function groups.get(line, field)
  local group = line.groups[field]
  if not group then
    group = decode_group(line, field, call('HGET', step.prefix .. 'groups' .. SEP .. line.name, field))
    line.groups[field] = group
  end
  return group
end
-- So many jobs join the only lane of a group, in which others wait already: nothing changes but numbers. A lane that is
-- blocked may open for a new head. True when they joined.
function groups.join(line, cls, field, number)
  local key = step.prefix .. 'groups' .. SEP .. line.name
  local text = call('HGET', key, field)
  local record = text and unpack_one(text)
  if not record or #record ~= SIZE + LANE_SIZE or record[FIRST_LANE] ~= cls.id then
    return false
  end
  if record[FIRST_LANE + LANE_STATE] == BLOCKED or record[FIRST_LANE + LANE_JOBS] == 0 then
    return false
  end
  for _, place in ipairs({ WAITING, SIZE, FIRST_LANE + LANE_JOBS }) do
    record[place] = record[place] + number
  end
  call('HSET', key, field, pack(record))
  return true
end

return groups
