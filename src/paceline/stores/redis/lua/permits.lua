-- Permits: starts that are no jobs. Kept as {started_at, keys}, where one was late also with its gate, and with the
-- keys
-- that were asked for once more, which hold no slot of their own.
local late = require('late')
local meters = require('meters')
local runs = require('runs')
local step = require('step')
local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack

local permits = {}
local function permit_name(id)
  return runs.lease_name(0, 'p', id)
end

function permits.permit(id)
  local blob = call('HGET', step.prefix .. 'permits', id)
  if not blob then
    return nil
  end
  local found = unpack_one(blob)
  return { id = id, started_at = found[1], keys = found[2], gate = found[3] or 0, again = found[4] }
end

function permits.write_permit(permit)
  local kept = { permit.started_at, permit.keys }
  if permit.gate > 0 or permit.again then
    kept[3], kept[4] = permit.gate, permit.again
  end
  call('HSET', step.prefix .. 'permits', permit.id, pack(kept))
end

-- What a permit of these keys is charged to; each key gives it one slot, however often it was asked for.
function permits.new_permit(id, keys, started_at)
  local permit, seen = { id = id, started_at = started_at, keys = {}, gate = 0 }, {}
  for _, pair in ipairs(keys) do
    local meter, into = pair[1], permit.keys
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
  for place = 1, #permit.keys, 4 do
    local meter = meters.get(permit.keys[place], permit.keys[place + 1] or nil)
    meter.in_flight, meter.dirty = meter.in_flight + 1, true
  end
end

function permits.extend_permit(id, lease_until)
  runs.add_lease(lease_until, permit_name(id))
end

-- A permit was given back, or its process died.
function permits.end_permit(permit, went_well)
  if went_well then
    runs.succeeded(permit.keys, permit.started_at)
    if permit.gate == 1 then
      late.begin(permit)
    end
  end
  late.abandon(permit)
  call('HDEL', step.prefix .. 'permits', permit.id)
  runs.end_lease(permit_name(permit.id))
  runs.free(permit.keys)
end

return permits
