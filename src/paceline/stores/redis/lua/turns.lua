-- Whose turn it is in a queue, for one claim: ready lanes by the turns of their groups, those of one group by their
-- heads.
-- A lane is filed at the turn that its group had then. Turns only grow, so that is a bound: a lane joins the race
-- when no
-- lane in it goes before its bound, and there the turn of its group decides. So a start files one lane, its own,
-- however
-- many classes the group has lanes in.
local constants = require('constants')
local lanes = require('lanes')
local lines = require('lines')
local step = require('step')
local call, from_bytes, sub, floor, ceil = redis.call, struct.unpack, string.sub, math.floor, math.ceil
local max, min, remove_at = math.max, math.min, table.remove
local SEP, READY = constants.SEP, constants.READY

local turns = {}
local TURN, FILED, WHO, CLASS, PRIORITY, ORDER = 1, 2, 3, 4, 5, 6 -- of an entry: who is a group, or its field

local function is_earlier(a, b)
  return a[TURN] < b[TURN] or (a[TURN] == b[TURN] and a[FILED] < b[FILED])
end

local function has_earlier_head(a, b)
  return a[PRIORITY] < b[PRIORITY] or (a[PRIORITY] == b[PRIORITY] and a[ORDER] < b[ORDER])
end

local function push(heap, entry, goes_before)
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
  local first, last = heap[1], remove_at(heap)
  local size = #heap
  if size == 0 then
    return first
  end
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

-- Read where the lanes of a class are filed, so many more. Kept from step to step until a lane of the class changes.
local function read_on(line, cls, number)
  local ready = cls.ready or { list = {}, complete = false }
  local list, from = ready.list, #ready.list
  local key = step.prefix .. 'ready' .. SEP .. line.name .. SEP .. cls.id
  local found = call('ZRANGE', key, from, from + number - 1, 'WITHSCORES')
  for place = 1, #found, 2 do
    local member = found[place]
    list[#list + 1] = { tonumber(found[place + 1]), (from_bytes('>I8', member)), sub(member, 9), cls }
  end
  cls.ready, ready.complete = ready, #found < 2 * number
  return ready
end

-- A lane of this class changed in the store: what was read of it holds no more, here and wherever else it is kept.
function turns.forget(line, cls)
  cls.ready, line.saved_at = nil, max(step.now, line.saved_at + 1)
end

-- Whether any lane of a class is ready; only after `lanes.save()`.
function turns.has_ready(line, cls)
  return #(cls.ready or read_on(line, cls, line.stride or 2)).list > 0
end

local function know_head(group, entry)
  if not entry[PRIORITY] then
    entry[PRIORITY], entry[ORDER] = lanes.head_place(group, entry[CLASS])
  end
end

-- A lane joins those of its group. The head of a lone one need not be known.
local function join(race, group, entry)
  local standing = group.standing
  if not standing then
    group.standing = { entry }
    push(race.groups, { group.turn, group.filed, group }, is_earlier)
    return
  end
  if standing[1] then
    know_head(group, standing[1])
    know_head(group, entry)
  end
  push(standing, entry, has_earlier_head)
end

-- Those lanes of a class join that were read and whose groups are known; the next one waits at its bound. The last
-- one read
-- says where the rest begins.
local function join_read(race, line, cls)
  local list, joined = cls.ready.list, cls.joined
  local last = cls.ready.complete and #list or #list - 1
  while joined < last do
    local entry = list[joined + 1]
    local group = line.groups[entry[WHO]]
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
    local field = list[place][WHO]
    if #fields < most and not fields[field] then
      fields[field], fields[#fields + 1] = true, field
    end
  end
end

local function is_closed(cls)
  return #cls.shared > 0 and lines.opens_at(cls) > step.now
end

-- More lanes of the class whose next one has the lowest bound.
local function let_more_join(race, line)
  local cls = pop(race.classes, is_earlier)[CLASS]
  if is_closed(cls) then
    return -- all its lanes are skipped
  end
  if not cls.ready.complete and cls.joined >= #cls.ready.list - 1 then
    read_on(line, cls, min(2 * #cls.ready.list, 100))
  end
  local fields = {}
  add_fields(cls, fields, step.args.slots)
  lanes.load_groups(line, fields)
  join_read(race, line, cls)
end

-- A lane that was filed in this step, or has another head now.
function turns.enter(lane)
  local race = lane.line.race
  if race and lane.cls.race == race then
    lane.touched, lane.group.dirty = true, true
    lane.entry = { 0, 0, lane.group.field, lane.cls }
    join(race, lane.group, lane.entry)
  end
end

-- The lanes of these classes take turns.
function turns.begin(line, classes)
  local race, racing, fields = { groups = {}, classes = {} }, {}, {}
  line.race, line.stride = race, ceil(step.args.slots / max(#classes, 1)) + 1
  for _, cls in ipairs(classes) do
    if cls.waiting > 0 then
      local ready = cls.ready or read_on(line, cls, line.stride)
      local first = ready.list[1]
      cls.race, cls.joined = race, 0
      racing[#racing + 1] = cls
      if first and not fields[first[WHO]] then
        add_fields(cls, fields, 2 * step.args.slots + 64)
      end
    end
  end
  lanes.load_groups(line, fields)
  for _, group in pairs(line.groups) do
    group.standing = nil
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
end

-- An entry counts while nothing happened to its lane in this step, or it is the last one made for it.
local function still_counts(group, entry)
  local lane = group.lanes[entry[CLASS].id]
  return not lane or not lane.touched or (lane.entry == entry and lane.state == READY and lane.jobs > 0)
end

-- The ready lane that goes first, out of the race: whoever leaves it ready lets it enter again. Classes whose shared
-- limits
-- are full are skipped; they stay full for the rest of the claim.
function turns.next(line)
  local race = line.race
  while true do
    local first, waits = race.groups[1], race.classes[1]
    local group = first and first[WHO]
    if first and first[FILED] ~= group.filed then
      pop(race.groups, is_earlier)
      push(race.groups, { group.turn, group.filed, group }, is_earlier)
    elseif waits and not (first and is_earlier(first, waits)) then
      -- At the same turn, too: it is a lane of the same group, and its head may go first.
      let_more_join(race, line)
    elseif not first then
      return nil
    elseif not group.standing[1] then
      pop(race.groups, is_earlier)
      group.standing = nil
    else
      local entry = pop(group.standing, has_earlier_head)
      if still_counts(group, entry) and not is_closed(entry[CLASS]) then
        return lanes.find(group, entry[CLASS])
      end
    end
  end
end

return turns
