-- A queue: its classes, delayed jobs, pauses and counts.
-- A class is the set of tasks that meet the same limits, are paused or not, and are known to the same workers.
local commands = require('commands')
local constants = require('constants')
local decoded = require('decoded')
local groups = require('groups')
local lanes = require('lanes')
local records = require('records')
local rows = require('rows')
local step = require('step')
local call, pack, format = redis.call, cmsgpack.pack, string.format
local sub = string.sub
local call_many = commands.call_many
local SEP, NEVER, BLOCKED, PAUSED = constants.SEP, constants.NEVER, constants.BLOCKED, constants.PAUSED
local decode_once, forget_decoded = decoded.decode_once, decoded.forget_decoded
local DUE_AT, TASK, GROUP = records.DUE_AT, records.TASK, records.GROUP

local lines = {}

-- What a class has beside its meaning: its waiting jobs, and an instant before which none of its blocked lanes opens.
function lines.with_numbers(cls, waiting, blocked_from)
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

local function new_state()
  local counts = { 0, 0, 0, 0, 0, 0 }
  return {
    virtual_time = 0,
    filings = 0,
    counts = counts,
    waiting = {},
    blocked_from = {},
    saved_at = 0,
    groups_waiting = 0, -- how many groups have a job that waits; nothing where an earlier release wrote last
  }
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
  local state = text and records.decode_queue_state(text) or new_state()
  local waiting, blocked_from = state.waiting, state.blocked_from
  line.virtual_time, line.filings, line.counts = state.virtual_time, state.filings, state.counts
  line.saved_at, line.groups_waiting = state.saved_at or step.now, state.groups_waiting
  for _, cls in pairs(line.classes) do
    -- Earlier releases did not write the last two: any lane may be blocked until any instant.
    lines.with_numbers(cls, waiting[cls.id], blocked_from and blocked_from[cls.id] or not blocked_from and 0)
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

local function encode_state(line)
  local waiting, blocked_from = {}, {}
  for id, cls in pairs(line.classes) do
    waiting[id] = cls.waiting
    if cls.blocked_from < NEVER then
      blocked_from[id] = cls.blocked_from
    end
  end
  return records.encode_queue_state({
    virtual_time = line.virtual_time,
    filings = line.filings,
    counts = line.counts,
    waiting = waiting,
    blocked_from = blocked_from,
    saved_at = line.saved_at,
    groups_waiting = line.groups_waiting,
  })
end

-- What a queue is, beside how far it has come: its pauses, the tasks that its workers know, its classes.
local function encode_definition(line)
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
  return pack({
    paused = line.paused,
    paused_tasks = line.paused_tasks,
    paused_groups = line.paused_groups,
    tasksets = line.tasksets,
    tasksets_made = line.tasksets_made,
    classes = classes,
    classes_made = line.classes_made,
  })
end

function lines.save()
  for name, line in pairs(step.lines) do
    if line then
      -- No two states of its lanes have the same text: what a step read of them is used again while the text stays.
      local text = encode_state(line)
      if text ~= line.text then
        call('HSET', step.prefix .. 'numbers', name, text)
        line.text = text
      end
      if line.redefined then
        forget_decoded()
        call('HSET', step.prefix .. 'queues', name, encode_definition(line))
        line.redefined = false
      end
    end
  end
end

local function delayed_key(line)
  return step.prefix .. 'delayed' .. SEP .. line.name
end

-- Take in a job that has not started: into its lane, or aside until it is due.
function lines.arrive(line, row)
  local group = groups.get(line, row.head[GROUP] or '')
  group.size = group.size + 1
  group.dirty = true
  if row.run[DUE_AT] > step.now then
    line.counts[2] = line.counts[2] + 1
    call('ZADD', delayed_key(line), format('%.0f', row.run[DUE_AT]), rows.place(row))
  else
    line.counts[1] = line.counts[1] + 1
    lanes.file(line, row)
  end
end

-- The lane of a job that waits in one.
function lines.lane_of(line, row)
  local cls = line.class_of_task[row.head[TASK]]
  local lane = cls and groups.find(groups.get(line, row.head[GROUP] or ''), cls)
  if lane and lane.jobs > 0 and call('ZSCORE', delayed_key(line), rows.place(row)) == false then
    return lane
  end
end

-- Take a job that has not started out of the line.
function lines.leave(line, row)
  local group = groups.get(line, row.head[GROUP] or '')
  group.size = group.size - 1
  group.dirty = true
  if call('ZREM', delayed_key(line), rows.place(row)) == 1 then
    line.counts[2] = line.counts[2] - 1
  else
    line.counts[1] = line.counts[1] - 1
    local lane = groups.of(line, line.class_of_task[row.head[TASK]], group)
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
  for _, lane in pairs(groups.of_group(groups.get(line, field))) do
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
