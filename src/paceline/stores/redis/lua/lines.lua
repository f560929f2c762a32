-- A queue: its classes, delayed jobs, pauses and counts.
-- A class is the set of tasks that meet the same limits, are paused or not, and are known to the same workers.
local commands = require('commands')
local constants = require('constants')
local decoded = require('decoded')
local lanes = require('lanes')
local limits = require('limits')
local meters = require('meters')
local rows = require('rows')
local step = require('step')
local wakes = require('wakes')
local call, pack, unpack_one, format = redis.call, cmsgpack.pack, cmsgpack.unpack, string.format
local sub, concat, sort, find_text = string.sub, table.concat, table.sort, string.find
local call_many = commands.call_many
local SEP, NEVER, BLOCKED, PAUSED = constants.SEP, constants.NEVER, constants.BLOCKED, constants.PAUSED
local decode_once, forget_decoded = decoded.decode_once, decoded.forget_decoded

local lines = {}

-- What a class has beside its meaning: its waiting jobs, and an instant before which none of its blocked lanes opens.
local function with_numbers(cls, waiting, blocked_from)
  cls.waiting, cls.blocked_from, cls.ready, cls.meters = waiting or 0, blocked_from or NEVER, nil, nil
  return cls
end

-- The classes of a queue by number, by meaning and by task; made once for as long as nobody changes the queue.
local function with_maps(said)
  if not said.by_id then
    said.by_id, said.by_signature, said.class_of_task = {}, {}, {}
    for _, cls in ipairs(said.classes) do
      said.by_id[cls.id], said.by_signature[cls.signature] = cls, cls
      for task in pairs(cls.tasks) do
        said.class_of_task[task] = cls
      end
    end
  end
  return said
end

local function new_line(name, said, text)
  local line = {
    name = name,
    groups = {},
    redefined = false,
    text = text, -- its numbers as they stand in the store
    paused = said.paused,
    paused_tasks = said.paused_tasks,
    paused_groups = said.paused_groups,
    tasksets = said.tasksets,
    tasksets_made = said.tasksets_made,
    classes_made = said.classes_made,
    classes = said.by_id,
    by_signature = said.by_signature,
    class_of_task = said.class_of_task,
  }
  local numbers = text and unpack_one(text) or { 0, 0, { 0, 0, 0, 0, 0, 0 }, {}, {}, 0 }
  local waiting, blocked_from = numbers[4], numbers[5]
  line.virtual_time, line.filings, line.counts, line.saved_at =
    numbers[1], numbers[2], numbers[3], numbers[6] or step.now
  for _, cls in pairs(line.classes) do
    -- Earlier releases did not write the last two: any lane may be blocked until any instant.
    with_numbers(cls, waiting[cls.id], blocked_from and blocked_from[cls.id] or not blocked_from and 0)
  end
  return line
end

-- The queue of this name, made when first needed.
function lines.get(name)
  local line = step.lines[name]
  if line then
    return line
  end
  local blob, text = call('HGET', step.prefix .. 'queues', name), call('HGET', step.prefix .. 'numbers', name)
  local said = with_maps(
    blob and decode_once('queue', name, blob)
      or { paused_tasks = {}, paused_groups = {}, tasksets = {}, classes = {}, tasksets_made = 0, classes_made = 0 }
  )
  line = said.line
  if line and text and line.text == text then
    -- As the last step left it.
    line.groups, line.started, line.race = {}, nil, nil
  else
    line = new_line(name, said, text)
    line.redefined = not blob
    said.line = line
  end
  step.lines[name] = line
  return line
end

function lines.exists(name)
  return step.lines[name] ~= nil or call('HEXISTS', step.prefix .. 'queues', name) == 1
end

-- Every queue there is.
function lines.all()
  local found, seen = {}, {}
  for _, name in ipairs(call('HKEYS', step.prefix .. 'queues')) do
    seen[name] = true
    if step.lines[name] ~= false then
      found[#found + 1] = lines.get(name)
    end
  end
  for name, line in pairs(step.lines) do
    if line and not seen[name] then
      found[#found + 1] = line
    end
  end
  return found
end

function lines.save()
  for name, line in pairs(step.lines) do
    if line then
      local waiting, blocked_from = {}, {}
      for id, cls in pairs(line.classes) do
        waiting[id] = cls.waiting
        if cls.blocked_from < NEVER then
          blocked_from[id] = cls.blocked_from
        end
      end
      -- No two states of its lanes have the same text: what a step read of them is used again while the text stays.
      local text = pack({ line.virtual_time, line.filings, line.counts, waiting, blocked_from, line.saved_at })
      if text ~= line.text then
        call('HSET', step.prefix .. 'numbers', name, text)
        line.text = text
      end
      if line.redefined then
        forget_decoded()
        local classes = {}
        for _, cls in pairs(line.classes) do
          classes[#classes + 1] = {
            id = cls.id,
            signature = cls.signature,
            names = cls.names,
            shared = cls.shared,
            own = cls.own,
            paused = cls.paused,
            known_by = cls.known_by,
            tasks = cls.tasks,
          }
        end
        local said = {
          paused = line.paused,
          paused_tasks = line.paused_tasks,
          paused_groups = line.paused_groups,
          tasksets = line.tasksets,
          tasksets_made = line.tasksets_made,
          classes = classes,
          classes_made = line.classes_made,
        }
        call('HSET', step.prefix .. 'queues', name, pack(said))
        line.redefined = false
      end
    end
  end
end

-- classes

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

function lines.class_for(line, task)
  local cls = line.class_of_task[task]
  if not cls then
    local meant = definition(line, task)
    cls = line.by_signature[meant.signature]
    if not cls then
      line.classes_made = line.classes_made + 1
      cls = with_numbers({ id = line.classes_made, tasks = {} })
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
function lines.shared(cls)
  if not cls.meters or cls.meters_of ~= step.number then
    cls.meters, cls.meters_of = {}, step.number
    for place, name in ipairs(cls.shared) do
      cls.meters[place] = meters.get(name, nil)
    end
  end
  return cls.meters
end

-- When the shared limits of a class admit a start of cost 1.
function lines.opens_at(cls)
  local at = 0
  for _, meter in ipairs(lines.shared(cls)) do
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
function lines.reclassify(line)
  lanes.save()
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
      for _, lane in ipairs(lanes.all(line, cls)) do
        lanes.redefine(lane, other_own and meant.own)
      end
      define(cls, meant)
      line.by_signature[meant.signature] = cls
    else
      for _, lane in ipairs(lanes.all(line, cls)) do
        homeless[#homeless + 1] = lane
      end
      gone[#gone + 1] = cls
    end
  end
  -- A class that is gone stays known until its lanes have moved out.
  for _, lane in ipairs(homeless) do
    lanes.move_out(lane)
  end
  lanes.save()
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

function lines.reclassify_all()
  for _, line in ipairs(lines.all()) do
    lines.reclassify(line)
  end
  wakes.all()
end

-- A worker knows this set of tasks; a new one makes classes of its own, and true is said.
function lines.know(line, set)
  if line.tasksets[set] then
    return false
  end
  line.tasksets_made = line.tasksets_made + 1
  line.tasksets[set] = line.tasksets_made
  line.redefined = true
  lines.reclassify(line)
  return true
end

-- jobs

local function delayed_key(line)
  return step.prefix .. 'delayed' .. SEP .. line.name
end

-- Take in a job that has not started: into its lane, or aside until it is due.
function lines.arrive(line, row)
  local group = lanes.group(line, row.group or '')
  group.size = group.size + 1
  group.dirty = true
  if row.due_at > step.now then
    line.counts[2] = line.counts[2] + 1
    call('ZADD', delayed_key(line), format('%.0f', row.due_at), rows.place(row))
  else
    line.counts[1] = line.counts[1] + 1
    lanes.file(line, row)
  end
end

-- The lane of a job that waits in one.
function lines.lane_of(line, row)
  local cls = line.class_of_task[row.task]
  local lane = cls and lanes.find(lanes.group(line, row.group or ''), cls)
  if lane and lane.jobs > 0 and call('ZSCORE', delayed_key(line), rows.place(row)) == false then
    return lane
  end
end

-- Take a job that has not started out of the line.
function lines.leave(line, row)
  local group = lanes.group(line, row.group or '')
  group.size = group.size - 1
  group.dirty = true
  if call('ZREM', delayed_key(line), rows.place(row)) == 1 then
    line.counts[2] = line.counts[2] - 1
  else
    line.counts[1] = line.counts[1] - 1
    local lane = lanes.of(line, line.class_of_task[row.task], group)
    lanes.take(lane, row)
    if lane.jobs > 0 and lane.state == BLOCKED then
      lanes.make_ready(lane)
    end
  end
  lanes.forget_if_idle(group)
end

-- File delayed jobs whose time has come, at most so many; returns how many.
function lines.promote_due(line, budget)
  if budget <= 0 or line.counts[2] == 0 then
    return 0
  end
  local due = call('ZRANGEBYSCORE', delayed_key(line), '-inf', format('%.0f', step.now), 'LIMIT', 0, budget)
  if #due == 0 then
    return 0
  end
  local ids = {}
  for place, member in ipairs(due) do
    ids[place] = sub(member, 9)
  end
  rows.load(ids)
  call_many('ZREM', delayed_key(line), due)
  for _, id in ipairs(ids) do
    line.counts[1], line.counts[2] = line.counts[1] + 1, line.counts[2] - 1
    lanes.file(line, step.rows[id])
  end
  return #due
end

function lines.next_due(line)
  if line.counts[2] == 0 then
    return NEVER
  end
  local found = call('ZRANGE', delayed_key(line), 0, 0, 'WITHSCORES')
  return found[2] and tonumber(found[2]) or NEVER
end

function lines.is_empty(line)
  return line.counts[1] == 0 and line.counts[2] == 0 and line.counts[3] == 0
end

function lines.pause_group(line, field, paused)
  line.paused_groups[field] = paused or nil
  line.redefined = true
  for _, lane in pairs(lanes.of_group(lanes.group(line, field))) do
    if lane.jobs > 0 then
      if paused then
        lane.state, lane.touched, lane.group.dirty = PAUSED, true, true
      else
        lanes.make_ready(lane)
      end
    end
  end
end

return lines
