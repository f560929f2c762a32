-- Classes: the tasks of a queue that meet the same limits, are paused or not, and are known to the same workers.
local constants = require('constants')
local filing = require('filing')
local lanes = require('lanes')
local limits = require('limits')
local lines = require('lines')
local meters = require('meters')
local room = require('room')
local step = require('step')
local wakes = require('wakes')
local concat, sort, find_text = table.concat, table.sort, string.find
local SEP = constants.SEP

local classes = {}

local function known_by(line, task)
  local numbers = {}
  for set, number in pairs(line.tasksets) do
    if find_text(SEP .. set .. SEP, SEP .. task .. SEP, 1, true) then
      numbers[#numbers + 1] = number
    end
  end
  sort(numbers)
  return numbers
end

-- What the class of a task stands for.
local function definition(line, task)
  local meant = { names = {}, shared = {}, own = {}, paused = line.paused_tasks[task] or false }
  for place, limit in ipairs(limits.meeting(line.name, task)) do
    meant.names[place] = limit.name
    local list = limit.by == 'group' and meant.own or meant.shared
    list[#list + 1] = limit.name
  end
  meant.known_by = known_by(line, task)
  meant.signature = concat(meant.names, SEP)
    .. SEP
    .. SEP
    .. tostring(meant.paused)
    .. SEP
    .. concat(meant.known_by, ',')
  return meant
end

local function define(cls, meant)
  cls.signature, cls.names, cls.shared, cls.own = meant.signature, meant.names, meant.shared, meant.own
  cls.paused, cls.known_by, cls.meters = meant.paused, meant.known_by, nil
end

function classes.class_for(line, task)
  local cls = line.class_of_task[task]
  if not cls then
    local meant = definition(line, task)
    cls = line.by_signature[meant.signature]
    if not cls then
      line.classes_made = line.classes_made + 1
      cls = lines.with_numbers({ id = line.classes_made, tasks = {} })
      define(cls, meant)
      line.classes[cls.id] = cls
      line.by_signature[cls.signature] = cls
    end
    cls.tasks[task] = true
    line.class_of_task[task] = cls
    line.redefined = true
  end
  return cls
end

-- The meters of the shared limits of a class.
function classes.shared(cls)
  if not cls.meters or cls.meters_of ~= step.number then
    cls.meters, cls.meters_of = {}, step.number
    for place, name in ipairs(cls.shared) do
      cls.meters[place] = meters.get(name, nil)
    end
  end
  return cls.meters
end

-- Whether the shared limits of a class admit a start of cost 1 now.
function classes.admits_unit(cls)
  for _, meter in ipairs(classes.shared(cls)) do
    if meter.reserved_by and meter.reserved_until > step.now or not room.admits_unit(meter) then
      return false
    end
  end
  return true
end

-- When the shared limits of a class admit a start of cost 1.
function classes.opens_at(cls)
  local at = 0
  for _, meter in ipairs(classes.shared(cls)) do
    local opens = meters.opens_at(meter, 1)
    if meter.reserved_by and meter.reserved_until > opens then
      opens = meter.reserved_until
    end
    if opens > at then
      at = opens
    end
  end
  return at
end

local function one_definition(line, cls)
  local meant
  for task in pairs(cls.tasks) do
    local its = definition(line, task)
    if meant and meant.signature ~= its.signature then
      return nil
    end
    meant = its
  end
  return meant
end

-- Limits, pauses or workers changed: put every task into the class it belongs to now.
function classes.reclassify(line)
  filing.save()
  local old = {}
  for _, cls in pairs(line.classes) do
    old[#old + 1] = cls
  end
  sort(old, function(a, b)
    return a.id < b.id
  end)
  line.by_signature, line.class_of_task, line.redefined = {}, {}, true
  local homeless, gone = {}, {}
  for _, cls in ipairs(old) do
    local meant = one_definition(line, cls)
    if meant and not line.by_signature[meant.signature] then
      -- The whole class goes together: no job has to move.
      local other_own = concat(meant.own, SEP) ~= concat(cls.own, SEP)
      for _, lane in ipairs(filing.all(line, cls)) do
        lanes.redefine(lane, other_own and meant.own)
      end
      define(cls, meant)
      line.by_signature[meant.signature] = cls
    else
      for _, lane in ipairs(filing.all(line, cls)) do
        homeless[#homeless + 1] = lane
      end
      gone[#gone + 1] = cls
    end
  end
  -- A class that is gone stays known until its lanes have moved out.
  for _, lane in ipairs(homeless) do
    lanes.move_out(lane)
  end
  filing.save()
  for _, cls in ipairs(gone) do
    line.classes[cls.id] = nil
    for _, group in pairs(line.groups) do
      group.lanes[cls.id] = nil
    end
  end
  for _, cls in pairs(line.classes) do
    for task in pairs(cls.tasks) do
      line.class_of_task[task] = cls
    end
  end
end

function classes.reclassify_all()
  for _, line in ipairs(lines.all()) do
    classes.reclassify(line)
  end
  wakes.all()
end

-- A worker knows this set of tasks; a new one makes classes of its own, and true is said.
function classes.know(line, set)
  if line.tasksets[set] then
    return false
  end
  line.tasksets_made = line.tasksets_made + 1
  line.tasksets[set] = line.tasksets_made
  line.redefined = true
  classes.reclassify(line)
  return true
end

return classes
