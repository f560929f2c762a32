-- Start something that is no job: all keys are charged, or none. A target is {limit, group, cost}.
local constants = require('constants')
local late = require('late')
local limits = require('limits')
local meters = require('meters')
local permits = require('permits')
local records = require('records')
local reserving = require('reserving')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local pack, max, min = cmsgpack.pack, math.max, math.min
local NEVER = constants.NEVER
local refuse = step.refuse
local GATE, KEYS = records.GATE, records.KEYS

local function meter_for(target)
  local name, group, cost = target[1], target[2], target[3]
  local meter = meters.find(name, group)
  if not meter or cost > 1 then
    meter = limits.require_key(name, group)
    if cost > meters.most(meter) then
      refuse('never fits', { limit = name, cost = cost, allowed = meters.most(meter) })
    end
  end
  return meter
end

-- A waiter of a big cost that only windows refuse keeps the room free, or smaller ones would always be first.
local function reserve(keys)
  local refusing = {}
  for _, pair in ipairs(keys) do
    local meter, cost = pair[1], pair[2]
    if meters.opens_at(meter, cost) > step.now then
      if meter.reserved_by and meter.reserved_by ~= step.args.permit then
        return
      end
      if cost <= 1 or not reserving.lacks_only_time(meter, cost) then
        return
      end
      refusing[#refusing + 1] = pair
    end
  end
  for _, pair in ipairs(refusing) do
    if not pair[1].reserved_by then
      reserving.reserve(pair[1], step.args.permit, pair[2])
      step.head.awaiting[step.args.permit] = true
    end
  end
end

local function refused(keys, till)
  if till >= NEVER then
    for _, pair in ipairs(keys) do
      -- Somebody waits for a slot who has no queue.
      wakes.await(pair[1], '')
    end
    till = runs.next_lease_end()
  end
  if step.args.waits then
    reserve(keys)
  end
  if step.args.waker then
    wakes.sleep(step.args.waker, { '' })
  end
  return { pack({ false, step.now, till, false, step.head.charges, step.ends.failed, NEVER }) }
end

-- A grant came too late to begin: decide again; only windows are asked, all else was decided then.
local function acquire_late()
  local keys = {}
  for _, target in ipairs(step.args.targets) do
    if limits.find(target[1]) then
      keys[#keys + 1] = { meters.get(target[1], target[2]), target[3] }
    end
  end
  local permit = permits.permit(step.args.permit)
  if not permit then
    permit = permits.new_permit(step.args.permit, keys, step.args.late)
    permits.take_slots(permit)
  end
  if permit.run[GATE] or late.open_again(permit) then
    permits.extend_permit(step.args.permit, step.now + step.args.lease)
    return { pack({ true, step.now, 0, true, step.head.charges, step.ends.failed, NEVER }) }
  end
  permits.end_permit(permit, false)
  late.look_again(keys)
  local till = #keys > 0 and 0 or step.now
  for _, pair in ipairs(keys) do
    till = max(till, meters.opens_at(pair[1], pair[2]))
  end
  till = till < NEVER and till or runs.next_lease_end()
  return { pack({ false, step.now, till, false, step.head.charges, step.ends.failed, NEVER }) }
end

local function guard_of(keys)
  local guard = NEVER
  for _, pair in ipairs(keys) do
    guard = min(guard, pair[1].guard)
  end
  return guard
end

local function work()
  if step.args.late then
    return acquire_late()
  end
  -- Leases that are over end now, also when this start is refused.
  runs.take_back(64)
  local keys, till, leased = {}, 0, false
  for place, target in ipairs(step.args.targets) do
    local found, meter = pcall(meter_for, target)
    if not found then
      if type(meter) == 'table' and meter.refusal then
        return { 'refused', pack(meter) }
      end
      error(meter, 0)
    end
    local opens = meters.opens_at(meter, target[3])
    if meter.reserved_by and meter.reserved_by ~= step.args.permit and step.now < meter.reserved_deadline then
      -- When it could start by now, the room is kept until it does, or until its time to do so is over.
      local kept = meter.reserved_until > step.now and meter.reserved_until or meter.reserved_deadline
      opens = max(opens, kept)
    end
    till = max(till, opens)
    leased = leased or meter.slots < NEVER
    keys[place] = { meter, target[3] }
  end
  if till > step.now and not step.args.force then
    return refused(keys, till)
  end
  if step.args.waits and #step.head.reserved > 0 then
    reserving.drop_reservations(step.args.permit)
  end
  if not leased then
    -- Nothing is held, so there is nothing to give back or to renew.
    for _, pair in ipairs(keys) do
      meters.count(pair[1], pair[2])
    end
    return { pack({ true, step.now, 0, false, step.head.charges, step.ends.failed, guard_of(keys) }) }
  end
  local seen = {}
  for _, pair in ipairs(keys) do
    local meter, cost = pair[1], pair[2]
    if seen[meter] then
      meters.count(meter, cost)
    else
      seen[meter] = true
      meters.charge(meter, step.args.permit, cost)
    end
  end
  -- A permit of this name that is still held goes on as this one.
  local old = permits.permit(step.args.permit)
  if old then
    late.abandon(old)
    runs.free(old.run[KEYS])
  end
  permits.write_permit(permits.new_permit(step.args.permit, keys, step.now))
  permits.extend_permit(step.args.permit, step.now + step.args.lease)
  return { pack({ true, step.now, 0, true, step.head.charges, step.ends.failed, guard_of(keys) }) }
end

return { work = work }
