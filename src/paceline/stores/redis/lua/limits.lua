-- The limits by name: which rules a task meets, with which numbers, and what operators said.
local constants = require('constants')
local decoded = require('decoded')
local lanes = require('lanes')
local meters = require('meters')
local order = require('order')
local reserving = require('reserving')
local step = require('step')
local wakes = require('wakes')
local call, pack, format, max, sort = redis.call, cmsgpack.pack, string.format, math.max, table.sort
local SEP, NEVER = constants.SEP, constants.NEVER
local decode_once, forget_decoded = decoded.decode_once, decoded.forget_decoded
local goes_first, sorted_keys = order.goes_first, order.sorted_keys
local refuse = step.refuse

local limits = {}

function limits.find(name)
  local limit = step.limits[name]
  if limit == nil then
    local blob = call('HGET', step.prefix .. 'limits', name)
    limit = blob and decode_once('limit', name, blob) or false
    step.limits[name] = limit
  end
  return limit or nil
end

function limits.require(name)
  local limit = limits.find(name)
  if not limit then
    refuse('unknown limit', { limit = name, known = sorted_keys(limits.all()) })
  end
  return limit
end

-- Every limit by its name.
function limits.all()
  if not step.has_all_limits then
    local stored = call('HGETALL', step.prefix .. 'limits')
    for place = 1, #stored, 2 do
      if step.limits[stored[place]] == nil then
        step.limits[stored[place]] = decode_once('limit', stored[place], stored[place + 1])
      end
    end
    step.has_all_limits = true
  end
  local found = {}
  for name, limit in pairs(step.limits) do
    if limit then
      found[name] = limit
    end
  end
  return found
end

-- In the order in which they were declared first.
function limits.in_order()
  local list = {}
  for _, limit in pairs(limits.all()) do
    list[#list + 1] = limit
  end
  sort(list, function(a, b)
    return a.order < b.order
  end)
  return list
end

local function write(limit)
  forget_decoded()
  step.limits[limit.name] = limit
  step.written_limits[limit.name] = limit
  step.scopes = nil
end

function limits.save()
  for name, limit in pairs(step.written_limits) do
    call('HSET', step.prefix .. 'limits', name, pack(limit))
  end
  step.written_limits = {}
end

-- The numbers of one key: the operator's word first, then what code declared.
function limits.kind(limit, group)
  local said = group and limit.said[group] or limit.said['']
  if said then
    return said.text, said.parts
  end
  local own = group and limit.overrides[group]
  if own then
    return own.text, own.parts
  end
  return limit.text, limit.parts
end

-- The parts of those numbers of one key that rule again when an operator's word ends: nil without one, none where
-- nothing limits then.
function limits.beneath(limit, group)
  local layers = { group and limit.said[group] or false, limit.said[''] or false }
  if not layers[1] and not layers[2] then
    return nil
  end
  layers[3] = group and limit.overrides[group] or limit
  local found, is_ruling = {}, true
  for _, layer in ipairs(layers) do
    if layer and not is_ruling then
      for _, part in ipairs(layer.parts) do
        found[#found + 1] = part
      end
    end
    is_ruling = is_ruling and not layer
  end
  return found
end

local function contains(list, name)
  for _, each in ipairs(list) do
    if each == name then
      return true
    end
  end
  return false
end

local function add_to(lists, name, limit)
  lists[name] = lists[name] or {}
  local list = lists[name]
  list[#list + 1] = limit
end

-- Limits by the tasks they name, or else by their queues, or else all in one list: made once for a step.
local function by_scope()
  if not step.scopes then
    step.scopes = { task = {}, queue = {}, all = {} }
    for _, limit in pairs(limits.all()) do
      for _, task in ipairs(limit.tasks or {}) do
        add_to(step.scopes.task, task, limit)
      end
      for _, queue in ipairs(not limit.tasks and limit.queues or {}) do
        add_to(step.scopes.queue, queue, limit)
      end
      if not limit.tasks and not limit.queues then
        add_to(step.scopes, 'all', limit)
      end
    end
  end
  return step.scopes
end

-- The limits that jobs of this task in this queue meet, in order of their names: it costs what the task meets, however
-- many limits there are.
function limits.meeting(queue, task)
  local scopes, found = by_scope(), {}
  for _, limit in ipairs(scopes.task[task] or {}) do
    if not limit.queues or contains(limit.queues, queue) then
      found[#found + 1] = limit
    end
  end
  for _, list in ipairs({ scopes.queue[queue] or {}, scopes.all }) do
    for _, limit in ipairs(list) do
      found[#found + 1] = limit
    end
  end
  sort(found, function(a, b)
    return goes_first(a.name, b.name)
  end)
  return found
end

function limits.is_detached(limit)
  return limit.queues and #limit.queues == 0
end

-- The meter of a key somebody named: a per-group limit needs a group, another one has none.
function limits.require_key(name, group)
  local limit = limits.require(name)
  if not limits.is_detached(limit) and (limit.by == 'group') ~= (group ~= nil) then
    refuse('wrong group', { limit = name, group = group, by = limit.by })
  end
  return meters.get(name, group)
end

-- A hold must name a limit, and a group only where the limit is per group; without one all groups are held.
function limits.check_hold(hold)
  if hold.create and not limits.find(hold.limit) then
    return
  end
  local limit = limits.require(hold.limit)
  if limit.by ~= 'group' and hold.group and not limits.is_detached(limit) then
    refuse('wrong group', { limit = hold.limit, group = hold.group, by = limit.by })
  end
end

-- What follows from all numbers together: the longest window, the next end of an operator's word.
local function look_at_all()
  step.head.longest, step.head.next_expiry = 60000000, NEVER
  local function see(parts)
    for _, part in ipairs(parts) do
      local length = part[1] == 'delay' and part[2] or (part[1] ~= 'concurrency' and part[3]) or 0
      step.head.longest = max(step.head.longest, length)
    end
  end
  for _, limit in pairs(limits.all()) do
    see(limit.parts)
    for _, own in pairs(limit.overrides) do
      see(own.parts)
    end
    for _, said in pairs(limit.said) do
      see(said.parts)
      if said.expires_at and said.expires_at < step.head.next_expiry then
        step.head.next_expiry = said.expires_at
      end
    end
  end
end

-- Give the meters of a limit, which were read under its old numbers, the numbers that hold now.
local function renew(limit, found)
  for _, meter in ipairs(found) do
    local text, parts = limits.kind(limit, meter.group)
    meters.change(meter, text, parts, limits.beneath(limit, meter.group))
  end
end

-- A program that lives on says again what it declared once: what was declared or dropped after that stands.
function limits.forgotten(declared)
  local wanted = {}
  for _, limit in ipairs(declared) do
    local old, dropped = limits.find(limit.name), call('HGET', step.prefix .. 'dropped', limit.name)
    local known = old and (not old.since or old.since >= limit.since or old.scope ~= limit.scope)
    if old and limits.is_detached(limit) and old.since and old.since < limit.since then
      known = false
    end
    if not known and tonumber(dropped or 0) < limit.since then
      wanted[#wanted + 1] = limit
    end
  end
  return wanted
end

-- Add or change limits; returns what was replaced, and whether other jobs meet other limits now.
function limits.declare(declared)
  local wanted = {}
  for _, limit in ipairs(declared) do
    local old = limits.find(limit.name)
    if old and limits.is_detached(limit) and not limits.is_detached(old) then
      -- A limiter's declaration names no jobs: it keeps the scope that the limit of its name has.
      limit.queues, limit.tasks, limit.by, limit.scope = old.queues, old.tasks, old.by, old.scope
      if next(limit.overrides) == nil then
        limit.overrides, limit.overrides_text = old.overrides, old.overrides_text
      end
      if not limit.backoff then
        limit.backoff, limit.backoff_text = old.backoff, old.backoff_text
      end
    end
    if old and old.scope ~= limit.scope and not limits.is_detached(old) then
      refuse('other scope', { old = old, new = limit })
    end
    wanted[#wanted + 1] = limit
  end
  local changed, widened = {}, false
  for _, limit in ipairs(wanted) do
    local old = limits.find(limit.name)
    local differs = old
      and (
        old.text ~= limit.text
        or old.overrides_text ~= limit.overrides_text
        or old.backoff_text ~= limit.backoff_text
      )
    -- Under their old numbers; whoever declares what is known, as every worker does that starts, reads none of them.
    local found = differs and meters.of(limit.name)
    widened = widened or not old or old.scope ~= limit.scope
    limit.since = limit.since or step.now
    if old then
      limit.order, limit.epoch, limit.said = old.order, old.epoch, old.said
      limit.held_until, limit.held_reason = old.held_until, old.held_reason
    else
      step.head.epochs = step.head.epochs + 1
      limit.order, limit.epoch, limit.said = step.head.epochs, step.head.epochs, {}
      call('HDEL', step.prefix .. 'dropped', limit.name)
    end
    write(limit)
    if differs then
      changed[#changed + 1] = { old = old, new = limit }
      renew(limit, found)
    end
  end
  look_at_all()
  return changed, widened
end

-- Forget a limit, its overrides and its counters.
function limits.drop(name)
  if not limits.find(name) then
    return false
  end
  for _, meter in ipairs(meters.of(name)) do
    reserving.remove_reserved(meter)
    meters.drop(meter)
  end
  call('DEL', step.prefix .. 'meter' .. SEP .. name)
  call('HDEL', step.prefix .. 'limits', name)
  call('HSET', step.prefix .. 'dropped', name, format('%.0f', step.now))
  step.limits[name], step.written_limits[name], step.scopes = false, nil, nil
  step.meters[name] = nil
  look_at_all()
  return true
end

-- Set an operator's numbers.
function limits.override(name, group, said)
  local limit = limits.require(name)
  local old, found = limit.said[group or ''], meters.of(name)
  step.head.epochs = step.head.epochs + 1
  said.order = old and old.order or step.head.epochs
  limit.said[group or ''] = said
  write(limit)
  look_at_all()
  renew(limit, found)
end

-- Take an operator's numbers back.
function limits.lift(name, group)
  local limit = limits.require(name)
  if not limit.said[group or ''] then
    return false
  end
  local found = meters.of(name)
  limit.said[group or ''] = nil
  write(limit)
  look_at_all()
  renew(limit, found)
  return true
end

-- Lift the overrides whose time is over.
function limits.expire()
  if step.now < step.head.next_expiry then
    return
  end
  for name, limit in pairs(limits.all()) do
    local over = {}
    for group, said in pairs(limit.said) do
      if said.expires_at and said.expires_at <= step.now then
        over[#over + 1] = group
      end
    end
    for _, group in ipairs(over) do
      limits.lift(name, group ~= '' and group or nil)
    end
    if #over > 0 then
      limits.opened(name)
    end
  end
end

-- Remember that all groups of a limit are held, also those that nobody has used yet.
function limits.hold_all(limit, at, reason)
  if at > (limit.held_until or 0) then
    limit.held_until, limit.held_reason = at, reason or nil
    write(limit)
  end
end

function limits.release_all(limit)
  if limit.held_until then
    limit.held_until, limit.held_reason = nil, nil
    write(limit)
  end
end

-- The numbers, the hold or the starts of a limit changed: whoever waits for it looks again.
function limits.opened(name, group)
  for _, meter in ipairs(meters.of(name)) do
    if not group or meter.group == group then
      lanes.look_again_under(meter)
    end
  end
  wakes.all()
end

return limits
