-- Start something that is no job: all keys are charged, or none. A target is {limit, group, cost}.
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
    if meters.opens_at(meter, cost) > now then
      if meter.reserved_by and meter.reserved_by ~= args.permit then
        return
      end
      if cost <= 1 or not meters.lacks_only_time(meter, cost) then
        return
      end
      refusing[#refusing + 1] = pair
    end
  end
  for _, pair in ipairs(refusing) do
    if not pair[1].reserved_by then
      meters.reserve(pair[1], args.permit, pair[2])
      head.awaiting[args.permit] = true
    end
  end
end

local function refused(keys, till)
  if till >= NEVER then
    for _, pair in ipairs(keys) do
      -- Somebody waits for a slot who has no queue.
      if not pair[1].awaited[''] then
        pair[1].awaited[''], pair[1].dirty = true, true
      end
    end
    till = runs.next_lease_end()
  end
  if args.waits then
    reserve(keys)
  end
  if args.waker then
    wakes.sleep(args.waker, { '' })
  end
  return { pack({ false, now, till, false, head.charges, runs.failed, NEVER }) }
end

-- A grant came too late to begin: decide again; only windows are asked, all else was decided then.
local function acquire_late()
  local keys = {}
  for _, target in ipairs(args.targets) do
    if limits.find(target[1]) then
      keys[#keys + 1] = { meters.get(target[1], target[2]), target[3] }
    end
  end
  local permit = runs.permit(args.permit)
  if not permit then
    permit = runs.new_permit(args.permit, keys, args.late)
    runs.take_slots(permit)
  end
  if permit.gate > 0 or runs.open_again(permit) then
    runs.extend_permit(args.permit, now + args.lease)
    return { pack({ true, now, 0, true, head.charges, runs.failed, NEVER }) }
  end
  runs.end_permit(permit, false)
  runs.look_again(keys)
  local till = #keys > 0 and 0 or now
  for _, pair in ipairs(keys) do
    till = max(till, meters.opens_at(pair[1], pair[2]))
  end
  till = till < NEVER and till or runs.next_lease_end()
  return { pack({ false, now, till, false, head.charges, runs.failed, NEVER }) }
end

local function guard_of(keys)
  local guard = NEVER
  for _, pair in ipairs(keys) do
    guard = min(guard, pair[1].guard)
  end
  return guard
end

local function work()
  if args.late then
    return acquire_late()
  end
  -- Leases that are over end now, also when this start is refused.
  runs.take_back(64)
  local keys, till, leased = {}, 0, false
  for place, target in ipairs(args.targets) do
    local found, meter = pcall(meter_for, target)
    if not found then
      if type(meter) == 'table' and meter.refusal then
        return { 'refused', pack(meter) }
      end
      error(meter, 0)
    end
    local opens = meters.opens_at(meter, target[3])
    if meter.reserved_by and meter.reserved_by ~= args.permit and now < meter.reserved_deadline then
      -- When it could start by now, the room is kept until it does, or until its time to do so is over.
      local kept = meter.reserved_until > now and meter.reserved_until or meter.reserved_deadline
      opens = max(opens, kept)
    end
    till = max(till, opens)
    leased = leased or meter.slots < NEVER
    keys[place] = { meter, target[3] }
  end
  if till > now and not args.force then
    return refused(keys, till)
  end
  if args.waits and #head.reserved > 0 then
    limits.drop_reservations(args.permit)
  end
  if not leased then
    -- Nothing is held, so there is nothing to give back or to renew.
    for _, pair in ipairs(keys) do
      meters.count(pair[1], pair[2])
    end
    return { pack({ true, now, 0, false, head.charges, runs.failed, guard_of(keys) }) }
  end
  local seen = {}
  for _, pair in ipairs(keys) do
    local meter, cost = pair[1], pair[2]
    if seen[meter] then
      meters.count(meter, cost)
    else
      seen[meter] = true
      meters.charge(meter, args.permit, cost)
    end
  end
  -- A permit of this name that is still held goes on as this one.
  local old = runs.permit(args.permit)
  if old then
    runs.abandon(old)
    runs.free(old.keys)
  end
  runs.write_permit(runs.new_permit(args.permit, keys, now))
  runs.extend_permit(args.permit, now + args.lease)
  return { pack({ true, now, 0, true, head.charges, runs.failed, guard_of(keys) }) }
end
step('acquire', work)
