-- How the lanes of a queue are filed in the store: by turn, until an instant, or until something finishes.
local commands = require('commands')
local constants = require('constants')
local groups = require('groups')
local lanes = require('lanes')
local step = require('step')
local turns = require('turns')
local call, pack, to_bytes, format, sub = redis.call, cmsgpack.pack, struct.pack, string.format, string.sub
local call_many = commands.call_many
local SEP, NEVER = constants.SEP, constants.NEVER
local READY, BLOCKED, PARKED = constants.READY, constants.BLOCKED, constants.PARKED
-- In this order: a lane that is filed elsewhere leaves its old place first.
local COMMANDS = {
  { list = 'not_ready', command = 'ZREM', what = 'ready' },
  { list = 'ready', command = 'ZADD', what = 'ready' },
  { list = 'not_blocked', command = 'ZREM', what = 'blocked' },
  { list = 'blocked', command = 'ZADD', what = 'blocked' },
  { list = 'not_parked', command = 'SREM', what = 'parked' },
  { list = 'parked', command = 'SADD', what = 'parked' },
}

local filing = {}

local function in_class(what, line, cls)
  return step.prefix .. what .. SEP .. line.name .. SEP .. cls.id
end

local function place_of(filed, field)
  return to_bytes('>I8', filed) .. field
end

-- When the first blocked lane of a class opens, after this instant; only as far as lanes are saved.
local function read_next_blocked(line, cls, after)
  local from = after and format('(%.0f', after) or '-inf'
  local found = call('ZRANGEBYSCORE', in_class('blocked', line, cls), from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  cls.blocked_from = found[2] and tonumber(found[2]) or NEVER
end

-- File lanes whose time has come as ready, at most so many; returns how many.
function filing.unblock_due(line, cls, budget)
  local moved = 0
  if budget <= 0 then
    return 0
  end
  local until_now = format('%.0f', step.now)
  local found = call('ZRANGEBYSCORE', in_class('blocked', line, cls), '-inf', until_now, 'LIMIT', 0, budget)
  local fields = {}
  for place, member in ipairs(found) do
    fields[place] = sub(member, 9)
  end
  groups.load(line, fields)
  for _, field in ipairs(fields) do
    local lane = groups.find(line.groups[field], cls)
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

-- When the first blocked lane of a class opens; only after `filing.save()`.
function filing.next_blocked(line, cls)
  if cls.blocked_from < NEVER then
    read_next_blocked(line, cls)
  end
  return cls.blocked_from
end

-- Every lane of a class that has waiting jobs; only after `filing.save()`.
function filing.all(line, cls)
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
  groups.load(line, fields)
  local found, seen = {}, {}
  for _, field in ipairs(fields) do
    local lane = groups.find(line.groups[field], cls)
    if lane and lane.jobs > 0 and not seen[field] then
      seen[field] = true
      found[#found + 1] = lane
    end
  end
  return found
end

-- One more argument of a command that a save sends for a class.
local function add_to(changes, lane, command, value, score)
  local lists = changes[lane.cls]
  if not lists then
    lists = { line = lane.line }
    changes[lane.cls] = lists
  end
  local list = lists[command]
  if not list then
    list = {}
    lists[command] = list
  end
  local size = #list
  if score then
    list[size + 1], list[size + 2] = score, value
  else
    list[size + 1] = value
  end
end

local function note_filing(lane, changes)
  local field, has_jobs = lane.group.field, lane.jobs > 0
  local ready = has_jobs and lane.state == READY and lane.group.filed or 0
  local blocked = has_jobs and lane.state == BLOCKED and lane.filed or 0
  local parked = has_jobs and lane.state == PARKED
  if lane.was_ready ~= ready then
    if lane.was_ready > 0 then
      add_to(changes, lane, 'not_ready', place_of(lane.was_ready, field))
    end
    if ready > 0 then
      add_to(changes, lane, 'ready', place_of(ready, field), lane.group.turn)
    end
    lane.was_ready = ready
  end
  if lane.was_blocked ~= blocked or (blocked > 0 and lane.was_till ~= lane.till) then
    if lane.was_blocked > 0 and lane.was_blocked ~= blocked then
      add_to(changes, lane, 'not_blocked', place_of(lane.was_blocked, field))
    end
    if blocked > 0 then
      add_to(changes, lane, 'blocked', place_of(blocked, field), lane.till)
    end
    lane.was_blocked, lane.was_till = blocked, lane.till
  end
  if lane.was_parked ~= parked then
    add_to(changes, lane, parked and 'parked' or 'not_parked', field)
    lane.was_parked = parked
  end
end

local function save_lane(group, lane, changes)
  if lane.added or lane.taken > 0 then
    lanes.sync(lane)
  end
  if lane.touched then
    note_filing(lane, changes)
    groups.put_into_record(group, lane)
    lane.touched = false
    turns.forget(group.line, lane.cls)
  end
  lane.heads = nil
end

-- The text of a group, and of its lanes.
local function encode_group(group, changes)
  local record = group.record
  record[1], record[2], record[3], record[4] = group.turn, group.filed, group.waiting, group.size
  for _, lane in pairs(group.lanes) do
    save_lane(group, lane, changes)
  end
  group.dirty = false
  return pack(record)
end

local function save_groups(line, changes)
  local kept, gone, idle, not_idle = {}, {}, {}, {}
  for field, group in pairs(line.groups) do
    if group.dirty then
      local text = encode_group(group, changes)
      if group.forgotten and group.size == 0 then
        gone[#gone + 1] = field
      else
        kept[#kept + 1] = field
        kept[#kept + 1] = text
      end
      local is_idle = group.size == 0 and group.id ~= nil and not group.forgotten
      if is_idle ~= group.was_idle then
        local list = is_idle and idle or not_idle
        list[#list + 1] = field
        group.was_idle = is_idle
      end
      group.forgotten = false
      line.race = nil
    end
  end
  local key = step.prefix .. 'groups' .. SEP .. line.name
  call_many('HSET', key, kept)
  call_many('HDEL', key, gone)
  key = step.prefix .. 'resting' .. SEP .. line.name
  call_many('SADD', key, idle)
  call_many('SREM', key, not_idle)
end

-- Write all groups and how their lanes are filed; what was read ahead is read again after this.
function filing.save()
  local changes = {}
  for _, line in pairs(step.lines) do
    if line then
      save_groups(line, changes)
    end
  end
  for cls, lists in pairs(changes) do
    for _, each in ipairs(COMMANDS) do
      if lists[each.list] then
        call_many(each.command, in_class(each.what, lists.line, cls), lists[each.list])
      end
    end
  end
end

return filing
