-- One key of a limit: the states of its kinds, the leases under it, the hold, a big job's reservation.
local commands = require('commands')
local constants = require('constants')
local kept = require('kept')
local kinds = require('kinds')
local limits = require('limits')
local memory = require('memory')
local rate = require('rate')
local records = require('records')
local step = require('step')
local call, unpack_one, format = redis.call, cmsgpack.unpack, string.format
local max, min = math.max, math.min
local call_many, read_many = commands.call_many, commands.read_many
local SEP, NEVER = constants.SEP, constants.NEVER
local ring_key = rate.ring_key
local METER_EPOCH, METER_IN_FLIGHT = records.METER_EPOCH, records.METER_IN_FLIGHT
local METER_QUEUES, METER_STATES = records.METER_QUEUES, records.METER_STATES
local METER_HOLD_UNTIL, METER_HOLD_REASON = records.METER_HOLD_UNTIL, records.METER_HOLD_REASON
local METER_HELD_AT, METER_REFUSALS = records.METER_HELD_AT, records.METER_REFUSALS
local METER_RESERVED_BY, METER_RESERVED_UNTIL = records.METER_RESERVED_BY, records.METER_RESERVED_UNTIL
local METER_RESERVED_DEADLINE, METER_AWAITED = records.METER_RESERVED_DEADLINE, records.METER_AWAITED
local METER_MEMORY, METER_OPEN = records.METER_MEMORY, records.METER_OPEN

local meters = {}

local function meter_key(name)
  return step.prefix .. 'meter' .. SEP .. name
end

-- What follows from the parts of a key, worked out once for all keys that share them.
local summaries = setmetatable({}, { __mode = 'k' })

local function summary_of(parts)
  local summary = summaries[parts]
  if not summary then
    summary = { slots = NEVER, guard = NEVER, most = NEVER, is_spaced = false }
    for _, part in ipairs(parts) do
      local kind = part[1]
      if kind == 'concurrency' then
        summary.slots = min(summary.slots, part[2])
      elseif kind == 'rate' then
        summary.most = min(summary.most, part[2])
        summary.guard = part[4] > 0 and min(summary.guard, part[4]) or summary.guard
      else
        summary.is_spaced = true
      end
    end
    summaries[parts] = summary
  end
  return summary
end

local function set_parts(meter, parts, remembered)
  local summary = summary_of(parts)
  meter.parts, meter.memory, meter.room = parts, remembered, nil
  meter.slots, meter.guard, meter.is_spaced = summary.slots, summary.guard, summary.is_spaced
end

local function new_states(parts)
  local states = {}
  for place, part in ipairs(parts) do
    states[place] = kinds[part[1]].new_state(part)
  end
  return states
end

-- A key of these numbers, from what the store has of it.
local function new_meter(name, group, limit, list)
  local text, parts = limits.kind(limit, group)
  local summary = summary_of(parts)
  return {
    name = name,
    group = group,
    text = text, -- of its numbers
    parts = parts,
    slots = summary.slots,
    guard = summary.guard, -- a handler that begins later than this after its start asks first
    is_spaced = summary.is_spaced,
    room = nil, -- how many starts of cost 1 it admits now, as far as that is known
    rings = nil,
    dirty = false,
    epoch = list[METER_EPOCH],
    in_flight = list[METER_IN_FLIGHT],
    queues = list[METER_QUEUES], -- where lanes under this key wait
    states = list[METER_STATES],
    hold_until = list[METER_HOLD_UNTIL] or 0,
    hold_reason = list[METER_HOLD_REASON] or nil,
    held_at = list[METER_HELD_AT] or 0,
    refusals = list[METER_REFUSALS] or 0,
    reserved_by = list[METER_RESERVED_BY] or nil,
    reserved_until = list[METER_RESERVED_UNTIL] or 0,
    reserved_deadline = list[METER_RESERVED_DEADLINE] or 0,
    awaited = list[METER_AWAITED] or nil, -- queues whose sleepers wait for a slot; '' are those who wait for a permit
    memory = list[METER_MEMORY] or nil,
    open = list[METER_OPEN] or 0, -- the cost of starts whose handlers may begin at any moment: every window counts it
  }
end

-- A meter that counted nothing; one of a limit that is held for all its groups is held too.
function meters.fresh(name, group)
  local limit = limits.require(name)
  local _, parts = limits.kind(limit, group)
  local meter = new_meter(name, group, limit, { limit.epoch, 0, {}, new_states(parts) })
  meter.hold_until, meter.hold_reason = limit.held_until or 0, limit.held_reason
  meters.remember_beneath(meter)
  return meter
end

-- A key that counted nothing remembers for numbers that rule again later.
function meters.remember_beneath(meter)
  local beneath = limits.beneath(limits.require(meter.name), meter.group) or {}
  meter.memory = memory.remember(meter.parts, beneath, meter.group ~= nil)
  meter.states[#meter.parts + 1] = meter.memory and memory.new_state(meter.memory) or nil
end

-- Its numbers are those of its limit: whoever changes them changes all its meters. One that is as the last step left it
-- need not be made again.
local function decode(name, group, blob)
  local limit = limits.require(name)
  local meter = kept.find(meter_key(name), group or '', blob)
  local _, parts = limits.kind(limit, group)
  if meter and meter.parts == parts then
    meter.room, meter.rings = nil, nil
    return meter
  end
  return new_meter(name, group, limit, unpack_one(blob))
end

local function encode(meter)
  local is_plain = meter.hold_until == 0 and meter.held_at == 0 and meter.refusals == 0
  is_plain = is_plain and meter.open == 0 and not meter.memory
  is_plain = is_plain and meter.reserved_deadline == 0 and not (meter.awaited and next(meter.awaited))
  return records.encode_meter(meter, is_plain)
end

-- Something was counted, freed, held or changed under this key.
function meters.touch(meter)
  meter.dirty, meter.room = true, nil
end

local function cache_of(name)
  local cache = step.meters[name]
  if not cache then
    cache = {}
    step.meters[name] = cache
  end
  return cache
end

-- The meter of one key if it was ever used.
function meters.find(name, group)
  local cache = cache_of(name)
  local meter = cache[group or '']
  if meter == nil then
    local blob = limits.find(name) and call('HGET', meter_key(name), group or '')
    meter = blob and decode(name, group, blob) or false
    cache[group or ''] = meter
  end
  return meter or nil
end

-- The meters of one limit and many groups, in one go.
function meters.load(name, groups)
  local cache, missing = cache_of(name), {}
  for place = 1, #groups do
    if cache[groups[place]] == nil then
      missing[#missing + 1] = groups[place]
      cache[groups[place]] = false
    end
  end
  if #missing == 0 or not limits.find(name) then
    return
  end
  local found = read_many('HMGET', meter_key(name), missing)
  for place = 1, #missing do
    local field = missing[place]
    cache[field] = found[place] and decode(name, field ~= '' and field or nil, found[place]) or false
  end
end

-- The meter of one key, made when first needed.
function meters.get(name, group)
  local meter = meters.find(name, group)
  if not meter then
    meter = meters.fresh(name, group)
    cache_of(name)[group or ''] = meter
  end
  return meter
end

-- All meters of one limit that exist.
function meters.of(name)
  local found = {}
  local cache = cache_of(name)
  local stored = call('HGETALL', meter_key(name))
  for place = 1, #stored, 2 do
    local field = stored[place]
    if cache[field] == nil then
      cache[field] = decode(name, field ~= '' and field or nil, stored[place + 1])
    end
  end
  for _, meter in pairs(cache) do
    if meter then
      found[#found + 1] = meter
    end
  end
  return found
end

-- All that is counted, whether it decides or not.
local function counted(meter)
  local all = { unpack(meter.parts) }
  all[#all + 1] = meter.memory
  return all
end

-- From this place on.
local function drop_logs(meter, first)
  for place, part in ipairs(counted(meter)) do
    if place >= first and (part[1] == 'rate' or part[1] == 'memory') then
      call('DEL', ring_key(meter, place))
      if meter.rings then
        meter.rings[place] = nil
      end
    end
  end
end

function meters.drop(meter)
  drop_logs(meter, 1)
  call('HDEL', meter_key(meter.name), meter.group or '')
  call('ZREM', step.prefix .. 'idle', meter.name .. SEP .. (meter.group or ''))
  cache_of(meter.name)[meter.group or ''] = false
end

-- From when on a meter may be forgotten, if nobody holds or wants anything under it then.
local function forget_after(meter)
  local at = meter.hold_until
  for place, part in ipairs(counted(meter)) do
    at = max(at, kinds[part[1]].forget_after(part, meter.states[place], meter, place))
  end
  return at
end

function meters.save()
  if next(step.meters) == nil then
    return
  end
  local idle = {}
  for name, cache in pairs(step.meters) do
    local fields = {}
    for field, meter in pairs(cache) do
      if meter and meter.dirty then
        if meter.rings then
          rate.save(meter)
        end
        local size, text = #fields, encode(meter)
        fields[size + 1], fields[size + 2] = field, text
        meter.dirty = false
        kept.keep(meter_key(name), field, text, meter)
        if meter.group and meter.in_flight == 0 and next(meter.queues) == nil then
          idle[#idle + 1] = format('%.0f', forget_after(meter))
          idle[#idle + 1] = name .. SEP .. field
        end
      end
    end
    call_many('HSET', meter_key(name), fields)
  end
  call_many('ZADD', step.prefix .. 'idle', idle)
end

-- The first instant at which this key admits a start of this cost.
function meters.opens_at(meter, cost)
  if meter.in_flight >= meter.slots then
    return NEVER
  end
  return meters.opens_in_time(meter, cost)
end

-- The same as far as time decides: a slot that is taken may be free at any moment.
function meters.opens_in_time(meter, cost)
  cost = cost + meter.open
  local at = meter.hold_until
  for place, part in ipairs(meter.parts) do
    if part[1] ~= 'concurrency' then
      local opens = kinds[part[1]].opens_at(meter, place, part, meter.states[place], cost)
      if opens > at then
        at = opens
      end
    end
  end
  return step.head.lost_at and max(at, meters.safe_at(meter)) or at
end

-- When starts that the server may have lost count no more.
function meters.safe_at(meter)
  local at = 0
  for _, part in ipairs(meter.parts) do
    if step.head.lost_at and part[1] ~= 'concurrency' then
      at = max(at, step.head.lost_at + (part[1] == 'delay' and part[2] or part[3]))
    end
  end
  return at
end

-- Count a start that holds no lease.
function meters.count(meter, cost)
  local now, states = step.now, meter.states
  meter.dirty = true
  meter.room = meter.room and not meter.is_spaced and meter.room - cost or nil
  step.head.charges = step.head.charges + 1
  for place, part in ipairs(meter.parts) do
    if part[1] ~= 'concurrency' then
      kinds[part[1]].charge(meter, place, part, states[place], cost, now)
    end
  end
  if meter.memory then
    local place = #meter.parts + 1
    memory.charge(meter, place, meter.memory, states[place], cost, now)
  end
end

-- Count a start and the lease that goes with it.
function meters.charge(meter, holder, cost)
  meter.in_flight = meter.in_flight + 1
  meters.count(meter, cost)
  if meter.reserved_by == holder then
    meter.reserved_by = nil
  end
end

-- The largest cost that is ever admitted.
function meters.most(meter)
  return summary_of(meter.parts).most
end

-- Go on under other numbers without forgetting the starts that still count.
function meters.change(meter, text, parts, beneath)
  local is_same = text == meter.text
  if is_same and not beneath then
    return
  end
  local old, states, dumped, continued = counted(meter), meter.states, {}, {}
  local remembered = memory.remember(parts, memory.remembering(old, states, beneath), meter.group ~= nil)
  if is_same and memory.same_memory(remembered, meter.memory) then
    return
  end
  for place, part in ipairs(old) do
    if part[1] == 'rate' or part[1] == 'memory' then
      dumped[place] = { rate.dump(meter, place, part, states[place]) }
    end
  end
  drop_logs(meter, is_same and #parts + 1 or 1)
  set_parts(meter, parts, remembered)
  for place, part in ipairs(counted(meter)) do
    -- Where only what is remembered changes, each part keeps its own log.
    local goes_on = is_same and place <= #parts
    continued[place] = goes_on and states[place] or memory.continue(meter, part, place, old, states, dumped)
  end
  meter.text, meter.states = text, continued
  meters.touch(meter)
  if not is_same then
    meter.reserved_by = nil
  end
end

-- Count from nothing; live leases and the hold stay.
function meters.forget_starts(meter)
  drop_logs(meter, 1)
  meter.states = new_states(meter.parts)
  meters.remember_beneath(meter)
  meter.reserved_by = nil
  meters.touch(meter)
end

-- True when a new meter would decide the same from now on.
function meters.forgettable(meter)
  if meter.in_flight > 0 or meter.refusals > 0 or meter.reserved_by or next(meter.queues) then
    return false
  end
  return forget_after(meter) <= step.now
end

return meters
