-- One key of a limit: the states of its kinds, the leases under it, the hold, a big job's reservation.
local commands = require('commands')
local constants = require('constants')
local kinds = require('kinds')
local limits = require('limits')
local memory = require('memory')
local rate = require('rate')
local step = require('step')
local call, pack, unpack_one, format = redis.call, cmsgpack.pack, cmsgpack.unpack, string.format
local floor, max, min = math.floor, math.max, math.min
local call_many = commands.call_many
local SEP, NEVER = constants.SEP, constants.NEVER
local ring_key = rate.ring_key

local meters = {}

local function meter_key(name)
  return step.prefix .. 'meter' .. SEP .. name
end

local function set_parts(meter, parts, remembered)
  meter.parts = parts
  meter.memory = remembered
  meter.slots, meter.guard = NEVER, NEVER
  for _, part in ipairs(parts) do
    if part[1] == 'concurrency' and part[2] < meter.slots then
      meter.slots = part[2]
    elseif part[1] == 'rate' and part[4] > 0 and part[4] < meter.guard then
      meter.guard = part[4] -- a handler that begins later than this after its start asks first
    end
  end
end

local function new_states(parts)
  local states = {}
  for place, part in ipairs(parts) do
    states[place] = kinds[part[1]].new_state(part)
  end
  return states
end

-- A meter that counted nothing; one of a limit that is held for all its groups is held too.
function meters.fresh(name, group)
  local limit = limits.require(name)
  local text, parts = limits.kind(limit, group)
  local meter = {
    name = name,
    group = group,
    rings = {},
    epoch = limit.epoch,
    text = text,
    states = new_states(parts),
    hold_until = limit.held_until or 0,
    hold_reason = limit.held_reason,
    held_at = 0,
    refusals = 0,
    reserved_until = 0,
    reserved_deadline = 0,
    in_flight = 0,
    open = 0, -- the cost of starts whose handlers may begin at any moment: every window counts it
    queues = {}, -- where lanes under this key wait
    awaited = {}, -- queues whose sleepers wait for a slot; '' stands for those who wait for a permit
  }
  set_parts(meter, parts)
  meters.remember_beneath(meter)
  return meter
end

-- A key that counted nothing remembers for numbers that rule again later.
function meters.remember_beneath(meter)
  local beneath = limits.beneath(limits.require(meter.name), meter.group) or {}
  meter.memory = memory.remember(meter.parts, beneath, meter.group ~= nil)
  meter.states[#meter.parts + 1] = meter.memory and memory.new_state(meter.memory) or nil
end

-- A meter is kept as {epoch, in_flight, queues, states}, and more where something is held, refused, kept free,
-- remembered
-- or open.
-- Its numbers are those of its limit: whoever changes them changes all its meters.
local function decode(name, group, blob)
  local found = unpack_one(blob)
  local text, parts = limits.kind(limits.require(name), group)
  local meter = {
    name = name,
    group = group,
    rings = {},
    epoch = found[1],
    in_flight = found[2],
    queues = found[3],
    states = found[4],
    text = text,
    hold_until = found[5] or 0,
    hold_reason = found[6] or nil,
    held_at = found[7] or 0,
    refusals = found[8] or 0,
    reserved_by = found[9] or nil,
    reserved_until = found[10] or 0,
    reserved_deadline = found[11] or 0,
    awaited = found[12] or {},
    open = found[14] or 0,
  }
  set_parts(meter, parts, found[13])
  return meter
end

local function encode(meter)
  local short = { meter.epoch, meter.in_flight, meter.queues, meter.states }
  local is_plain = meter.hold_until == 0 and meter.held_at == 0 and meter.refusals == 0
  is_plain = is_plain and meter.open == 0 and not meter.memory
  if is_plain and meter.reserved_deadline == 0 and next(meter.awaited) == nil then
    return pack(short)
  end
  short[5], short[6], short[7] = meter.hold_until, meter.hold_reason or false, meter.held_at
  short[8], short[9], short[10] = meter.refusals, meter.reserved_by or false, meter.reserved_until
  short[11], short[12], short[13] = meter.reserved_deadline, meter.awaited, meter.memory
  short[14] = meter.open > 0 and meter.open or nil
  return pack(short)
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
local function kept(meter)
  local all = { unpack(meter.parts) }
  all[#all + 1] = meter.memory
  return all
end

-- From this place on.
local function drop_logs(meter, first)
  for place, part in ipairs(kept(meter)) do
    if place >= first and (part[1] == 'rate' or part[1] == 'memory') then
      call('DEL', ring_key(meter, place))
      meter.rings[place] = nil
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
  for place, part in ipairs(kept(meter)) do
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
        rate.save(meter)
        fields[#fields + 1] = field
        fields[#fields + 1] = encode(meter)
        meter.dirty = false
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
  meter.dirty = true
  step.head.charges = step.head.charges + 1
  for place, part in ipairs(meter.parts) do
    if part[1] ~= 'concurrency' then
      kinds[part[1]].charge(meter, place, part, meter.states[place], cost, step.now)
    end
  end
  if meter.memory then
    local place = #meter.parts + 1
    memory.charge(meter, place, meter.memory, meter.states[place], cost, step.now)
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
  local most = NEVER
  for _, part in ipairs(meter.parts) do
    if part[1] == 'rate' and part[2] < most then
      most = part[2]
    end
  end
  return most
end

-- Go on under other numbers without forgetting the starts that still count.
function meters.change(meter, text, parts, beneath)
  local is_same = text == meter.text
  if is_same and not beneath then
    return
  end
  local old, states, dumped, continued = kept(meter), meter.states, {}, {}
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
  for place, part in ipairs(kept(meter)) do
    -- Where only what is remembered changes, each part keeps its own log.
    local goes_on = is_same and place <= #parts
    continued[place] = goes_on and states[place] or memory.continue(meter, part, place, old, states, dumped)
  end
  meter.text, meter.states, meter.dirty = text, continued, true
  if not is_same then
    meter.reserved_by = nil
  end
end

-- Let nobody start before the instant. A hold only ever grows.
function meters.hold(meter, at, reason)
  meter.dirty = true
  meter.held_at = step.now
  if at > meter.hold_until then
    meter.hold_until, meter.hold_reason = at, reason or nil
  end
end

-- Hold after an outside refusal without a time; each one in a row holds longer.
function meters.refuse(meter, backoff, jitter, reason, started_at)
  if started_at and meter.refusals > 0 and started_at <= meter.held_at then
    return -- it ran already when the hold was made: the same refusal, heard once more
  end
  meter.refusals = meter.refusals + 1
  local length = min(floor(backoff.initial * backoff.multiplier ^ (meter.refusals - 1)), backoff.maximum)
  meters.hold(meter, step.now + length + floor(length * jitter), reason)
end

-- Lift the hold; what was counted stays.
function meters.release(meter)
  meter.dirty = true
  meter.hold_until, meter.hold_reason, meter.refusals = 0, nil, 0
end

-- A job that started after the hold went well: the next refusal is the first in a row again.
function meters.succeeded(meter, started_at)
  if meter.refusals > 0 and started_at > meter.held_at then
    meter.refusals, meter.dirty = 0, true
  end
end

-- Count from nothing; live leases and the hold stay.
function meters.forget_starts(meter)
  drop_logs(meter, 1)
  meter.states = new_states(meter.parts)
  meters.remember_beneath(meter)
  meter.reserved_by, meter.dirty = nil, true
end

-- How full the key is, by its fullest part; nothing is allowed where nothing limits it.
function meters.used_and_allowed(meter)
  local used, allowed, share = meter.in_flight, false, -1
  for place, part in ipairs(meter.parts) do
    local kind = kinds[part[1]]
    local its_used = kind.used(meter, place, part, meter.states[place]) + (part[1] == 'rate' and meter.open or 0)
    local its_allowed = kind.allowed(part)
    if its_used / its_allowed > share then
      used, allowed, share = its_used, its_allowed, its_used / its_allowed
    end
  end
  return used, allowed
end

-- True when a new meter would decide the same from now on.
function meters.forgettable(meter)
  if meter.in_flight > 0 or meter.refusals > 0 or meter.reserved_by or next(meter.queues) then
    return false
  end
  return forget_after(meter) <= step.now
end

return meters
