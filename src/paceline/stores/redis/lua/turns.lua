-- Whose turn it is in a queue, for one claim: ready lanes by the turns of their groups, those of one group by their
-- heads. A lane is filed at the turn that its group had then. Turns only grow, so that is a bound: a lane joins the
-- race when nobody in it goes before its bound, and there the turn of its group decides. So a start files one lane,
-- its own, however many classes the group has lanes in. A group that started goes behind those who wait, mostly to
-- the end: a sorted list is enough.
local classes = require('classes')
local constants = require('constants')
local groups = require('groups')
local lanes = require('lanes')
local meters = require('meters')
local step = require('step')
local call, from_bytes, sub = redis.call, struct.unpack, string.sub
local floor, ceil, max, min, remove_at = math.floor, math.ceil, math.max, math.min, table.remove
local SEP, READY = constants.SEP, constants.READY

local turns = {}

local function is_earlier(a, b)
  return a.turn < b.turn or (a.turn == b.turn and a.filed < b.filed)
end

local function has_earlier_head(a, b)
  return a.priority < b.priority or (a.priority == b.priority and a.order < b.order)
end

local function push(heap, entry, goes_before)
  if not heap[1] then
    heap[1] = entry
    return
  end
  local place = #heap + 1
  heap[place] = entry
  while place > 1 do
    local parent = floor(place / 2)
    if not goes_before(entry, heap[parent]) then
      break
    end
    heap[place], heap[parent] = heap[parent], entry
    place = parent
  end
end

local function pop(heap, goes_before)
  local first = heap[1]
  if not heap[2] then
    heap[1] = nil
    return first
  end
  local last = remove_at(heap)
  local size = #heap
  local place, child = 1, 2
  while child <= size do
    if child < size and goes_before(heap[child + 1], heap[child]) then
      child = child + 1
    end
    if not goes_before(heap[child], last) then
      break
    end
    heap[place] = heap[child]
    place, child = child, child * 2
  end
  heap[place] = last
  return first
end

local function ready_key(line, cls)
  return step.prefix .. 'ready' .. SEP .. line.name .. SEP .. cls.id
end

-- Read where the lanes of a class are filed, so many more. Kept from step to step until a lane of the class changes.
local function read_on(line, cls, number)
  local ready = cls.ready or { list = {}, complete = false }
  local list, from = ready.list, #ready.list
  local found = call('ZRANGE', ready_key(line, cls), from, from + number - 1, 'WITHSCORES')
  for place = 1, #found, 2 do
    local member = found[place]
    local turn, filed = tonumber(found[place + 1]), from_bytes('>I8', member)
    list[#list + 1] = { turn = turn, filed = filed, field = sub(member, 9), cls = cls, priority = nil, order = nil }
  end
  cls.ready, ready.complete = ready, #found < 2 * number
  return ready
end

-- A lane of this class changed in the store: what was read of it holds no more, here and wherever else it is kept.
function turns.forget(line, cls)
  cls.ready, line.saved_at = nil, max(step.now, line.saved_at + 1)
end

-- Whether any lane of a class is ready; only after `filing.save()`.
function turns.has_ready(line, cls)
  if cls.ready then
    return #cls.ready.list > 0
  end
  return call('ZCARD', ready_key(line, cls)) > 0
end

-- The group stands in the race, at its turn.
local function stand(race, group)
  if group.stands then
    return
  end
  group.stands = true
  local standing, place, first = race.standing, race.last + 1, race.first
  race.last = place
  while place > first and is_earlier(group, standing[place - 1]) do
    standing[place] = standing[place - 1]
    place = place - 1
  end
  standing[place] = group
end

local function know_head(group, entry)
  if not entry.priority then
    entry.priority, entry.order = lanes.head_place(group, entry.cls)
  end
end

-- A lane joins those of its group. The head of a lone one need not be known.
local function join(race, group, entry)
  local standing = group.standing
  if not standing then
    group.standing = { entry }
  else
    if standing[1] then
      know_head(group, standing[1])
      know_head(group, entry)
    end
    push(standing, entry, has_earlier_head)
  end
  stand(race, group)
end

-- Those lanes of a class join that were read and whose groups are known; the next one waits at its bound. The last one
-- read says where the rest begins.
local function join_read(race, line, cls)
  local list, joined = cls.ready.list, cls.joined
  local last = cls.ready.complete and #list or #list - 1
  while joined < last do
    local entry = list[joined + 1]
    local group = line.groups[entry.field]
    if not group then
      break
    end
    joined = joined + 1
    local lane = group.lanes[cls.id]
    if not lane or not lane.touched then
      join(race, group, entry)
    end
  end
  cls.joined = joined
  if joined < #list then
    push(race.classes, list[joined + 1], is_earlier)
  end
end

-- The fields of the groups of those lanes of a class that were read and did not join yet.
local function add_fields(cls, fields, most)
  local list = cls.ready.list
  for place = cls.joined + 1, cls.ready.complete and #list or #list - 1 do
    local field = list[place].field
    if #fields < most and not fields[field] then
      fields[field], fields[#fields + 1] = true, field
    end
  end
end

local function is_closed(cls)
  return #cls.shared > 0 and not classes.admits_unit(cls)
end

-- More lanes of the class whose next one has the lowest bound.
local function let_more_join(race, line)
  local cls = pop(race.classes, is_earlier).cls
  if is_closed(cls) then
    return -- all its lanes are skipped
  end
  if not cls.ready.complete and cls.joined >= #cls.ready.list - 1 then
    read_on(line, cls, min(2 * #cls.ready.list, 100))
  end
  local fields = {}
  add_fields(cls, fields, step.args.slots)
  groups.load(line, fields)
  join_read(race, line, cls)
end

-- A lane that was filed in this step, or has another head now.
function turns.enter(lane)
  local race = lane.line.race
  if race and lane.cls.race == race then
    lane.touched, lane.group.dirty = true, true
    local entry = lane.popped or { turn = 0, filed = 0, field = lane.group.field, cls = lane.cls }
    lane.entry, lane.popped = entry, nil
    entry.priority, entry.order = nil, nil
    join(race, lane.group, entry)
  end
end

-- What those who go first need, in few commands: their groups' meters, and their heads.
local function read_ahead(race, racing)
  local some, fields, slots = {}, {}, step.args.slots
  for place = race.first, min(race.last, race.first + slots - 1) do
    local group = race.standing[place]
    local entry = group.standing[1]
    local lane = entry and not group.standing[2] and groups.find(group, entry.cls)
    if lane then
      some[#some + 1] = lane
      if group.id then
        fields[#fields + 1] = group.id
      end
    end
  end
  for _, cls in ipairs(racing) do
    for _, name in ipairs(cls.own) do
      meters.load(name, fields)
    end
  end
  lanes.read_heads(some, #some > 0 and min(ceil(slots / #some), 128) or 1)
end

-- The lanes of these classes take turns.
function turns.begin(line, visible)
  local race, racing, fields = { standing = {}, first = 1, last = 0, classes = {} }, {}, {}
  local slots = step.args.slots
  local wanted = ceil(slots / #visible) + 1
  line.race = race
  for _, cls in ipairs(visible) do
    if cls.waiting > 0 then
      local ready = cls.ready
      if not ready or (not ready.complete and #ready.list < wanted) then
        ready = read_on(line, cls, wanted)
      end
      local first = ready.list[1]
      cls.race, cls.joined = race, 0
      racing[#racing + 1] = cls
      if first and not fields[first.field] then
        add_fields(cls, fields, 2 * slots + 64)
      end
    end
  end
  groups.load(line, fields)
  for _, group in pairs(line.groups) do
    group.standing, group.stands = nil, false
  end
  for _, cls in ipairs(racing) do
    join_read(race, line, cls)
  end
  for _, group in pairs(line.groups) do
    for _, lane in pairs(group.lanes) do
      if lane.touched and lane.state == READY and lane.jobs > 0 then
        turns.enter(lane)
      end
    end
  end
  read_ahead(race, racing)
end

-- An entry counts while nothing happened to its lane in this step, or it is the last one made for it.
local function still_counts(group, entry)
  local lane = group.lanes[entry.cls.id]
  return not lane or not lane.touched or (lane.entry == entry and lane.state == READY and lane.jobs > 0)
end

-- The lane of a group that goes first; the group stands again where others of its lanes do.
local function next_lane(group)
  local standing = group.standing
  while standing[1] do
    local entry = pop(standing, has_earlier_head)
    if still_counts(group, entry) and not is_closed(entry.cls) then
      local lane = groups.find(group, entry.cls)
      lane.popped = entry
      return lane
    end
  end
end

-- A group that was looked at stands where its turn is now, if any of its lanes does.
function turns.stand_again(line, group)
  if line.race and group.standing and group.standing[1] then
    stand(line.race, group)
  end
end

-- The ready lane that goes first, out of the race: whoever leaves it ready lets it enter again. Classes whose shared
-- limits are full are skipped; they stay full for the rest of the claim.
function turns.next(line)
  local race = line.race
  while true do
    local group, waits = race.standing[race.first], race.classes[1]
    if waits and not (group and is_earlier(group, waits)) then
      -- At the same turn, too: it is a lane of the same group, and its head may go first.
      let_more_join(race, line)
    elseif not group then
      return nil
    else
      race.standing[race.first] = nil
      race.first, group.stands = race.first + 1, false
      local lane = next_lane(group)
      if lane then
        return lane
      end
    end
  end
end

return turns
