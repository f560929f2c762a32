-- Permits: starts that are no jobs. `again` are keys that were asked for once more, which hold no slot of their own.
local constants = require('constants')
local late = require('late')
local meters = require('meters')
local runs = require('runs')
local records = require('records')
local step = require('step')
local call = redis.call
local ON_TIME, OPEN = constants.ON_TIME, constants.OPEN
local STARTED_AT, KEYS, GATE = records.STARTED_AT, records.KEYS, records.GATE

local permits = {}

local function permit_name(id)
  return runs.lease_name(0, 'p', id)
end

-- A holder of a start, with what it has in common with a job that runs.
local function new_holder(id, started_at, keys, gate, again)
  local run = { [STARTED_AT] = started_at, [KEYS] = keys, [GATE] = gate ~= ON_TIME and gate or nil }
  return { id = id, is_permit = true, run = run, again = again }
end

function permits.permit(id)
  local blob = call('HGET', step.prefix .. 'permits', id)
  if not blob then
    return nil
  end
  local kept = records.decode_permit(blob)
  return new_holder(id, kept.started_at, kept.keys, kept.gate, kept.again)
end

function permits.write_permit(permit)
  local run = permit.run
  local kept = { started_at = run[STARTED_AT], keys = run[KEYS], gate = run[GATE], again = permit.again }
  local text = records.encode_permit(kept, not kept.gate and not kept.again)
  call('HSET', step.prefix .. 'permits', permit.id, text)
end

-- What a permit of these keys is charged to; each key gives it one slot, however often it was asked for.
function permits.new_permit(id, keys, started_at)
  local permit, seen = new_holder(id, started_at, {}), {}
  for _, pair in ipairs(keys) do
    local meter, into = pair[1], permit.run[KEYS]
    if seen[meter] then
      permit.again = permit.again or {}
      into = permit.again
    end
    seen[meter] = true
    local size = #into
    into[size + 1], into[size + 2], into[size + 3], into[size + 4] =
      meter.name, meter.group or false, meter.epoch, pair[2]
  end
  return permit
end

-- It holds a slot of each of its keys.
function permits.take_slots(permit)
  local keys = permit.run[KEYS]
  for place = 1, #keys, 4 do
    local meter = meters.get(keys[place], keys[place + 1] or nil)
    meter.in_flight = meter.in_flight + 1
    meters.touch(meter)
  end
end

function permits.extend_permit(id, lease_until)
  runs.add_lease(lease_until, permit_name(id))
end

-- A permit was given back, or its process died.
function permits.end_permit(permit, went_well)
  if went_well then
    if permit.run[GATE] == OPEN then
      late.begin(permit)
    end
  end
  late.abandon(permit)
  call('HDEL', step.prefix .. 'permits', permit.id)
  runs.end_lease(permit_name(permit.id))
  runs.free(permit.run[KEYS], went_well and permit.run[STARTED_AT] or nil)
end

return permits
