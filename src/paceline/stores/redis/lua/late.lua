-- Late starts: what one took from windows is taken out, it is open until its handler has begun, and counts from there.
local constants = require('constants')
local lanes = require('lanes')
local meters = require('meters')
local permits = require('permits')
local rate = require('rate')
local records = require('records')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local call, pack, floor, max, min = redis.call, cmsgpack.pack, math.floor, math.max, math.min
local OPEN, BEGUN = constants.OPEN, constants.BEGUN
local SEP, TOTAL, BASE, LOST_AT = constants.SEP, constants.TOTAL, constants.BASE, constants.LOST_AT
local MADE, FIRST, LAST_AT, FOLDED = constants.MADE, constants.FIRST, constants.LAST_AT, constants.FOLDED
local read_entry, write_entry, drop_entry = rate.read_entry, rate.write_entry, rate.drop_entry
local first_entry, search_spent = rate.first_entry, rate.search_spent
local STATE, STARTED_AT, FENCE, KEYS = records.STATE, records.STARTED_AT, records.FENCE, records.KEYS
local QUEUE, GATE, TASK, GROUP, COST = records.QUEUE, records.GATE, records.TASK, records.GROUP, records.COST

local late = {}

-- Fold what no decision under this `max` can ask for, so that the outcome does not depend on how long a ring is.
local function fold(meter, place, part, state)
  local low = max(first_entry(state), state[FIRST])
  local first = search_spent(meter, place, state, low, state[TOTAL] - part[2] + 1)
  if first > 0 then
    state[FIRST], state[FOLDED] = first, first
    state[LOST_AT], state[BASE] = read_entry(meter, place, state, first - 1)
  end
  return first
end

-- The first entry at this instant or later, from `low` on.
local function first_at(meter, place, state, low, at)
  local high = state[MADE]
  while low < high do
    local middle = floor((low + high) / 2)
    if read_entry(meter, place, state, middle) >= at then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- The entry of this instant among those from `low` on.
local function find_entry(meter, place, state, low, at)
  low = first_at(meter, place, state, low, at)
  return low < state[MADE] and read_entry(meter, place, state, low) == at and low or nil
end

-- Undo a charge, as long as it is known one by one; an entry that is empty then is gone.
local function take_out(meter, place, part, state, cost, at)
  if state[LAST_AT] < 0 then
    return
  end
  local first = fold(meter, place, part, state)
  local index = find_entry(meter, place, state, first, at)
  if not index then
    return
  end
  local last = state[MADE] - 1
  local _, spent = read_entry(meter, place, state, index)
  local _, before = nil, state[BASE]
  if index > first then
    _, before = read_entry(meter, place, state, index - 1)
  end
  local taken = min(cost, spent - before)
  local gone = taken == spent - before and 1 or 0
  for later = index, last - gone do
    local its_at, its_spent = read_entry(meter, place, state, later + gone)
    write_entry(meter, place, later, its_at, its_spent - taken)
  end
  state[TOTAL] = state[TOTAL] - taken
  if gone > 0 then
    drop_entry(meter, place, last)
    state[MADE] = last
    state[LAST_AT] = last > first and read_entry(meter, place, state, last - 1) or -1
  end
end

-- Count a start at an instant that may lie before others.
local function put_in(meter, place, part, state, cost, at)
  if state[LAST_AT] < 0 or at >= state[LAST_AT] then
    rate.charge(meter, place, part, state, cost, at)
    return
  end
  local first, made = fold(meter, place, part, state), state[MADE]
  state[TOTAL] = state[TOTAL] + cost
  local from = first
  if state[BASE] > 0 and at <= state[LOST_AT] then
    -- As old as what is not known one by one.
    state[BASE] = state[BASE] + cost
    if first > 0 then
      write_entry(meter, place, first - 1, state[LOST_AT], state[BASE])
    end
  else
    from = first_at(meter, place, state, first, at)
    if read_entry(meter, place, state, from) ~= at then
      local before = state[BASE]
      if from > first then
        local _, spent = read_entry(meter, place, state, from - 1)
        before = spent
      end
      for later = made - 1, from, -1 do
        local its_at, its_spent = read_entry(meter, place, state, later)
        write_entry(meter, place, later + 1, its_at, its_spent)
      end
      write_entry(meter, place, from, at, before)
      state[MADE] = made + 1
    end
  end
  for later = from, state[MADE] - 1 do
    local its_at, its_spent = read_entry(meter, place, state, later)
    write_entry(meter, place, later, its_at, its_spent + cost)
  end
end

-- What counts starts one by one: {place, part} of rates and of what is remembered.
local function logs_of(meter)
  local found = {}
  for place, part in ipairs(meter.parts) do
    if part[1] == 'rate' then
      found[#found + 1] = { place, part }
    end
  end
  if meter.memory then
    found[#found + 1] = { #meter.parts + 1, meter.memory }
  end
  return found
end

-- Count a start in every window until its handler has begun.
local function open_up(meter, cost)
  meter.open = max(meter.open + cost, 0)
  meters.touch(meter)
end

-- What a start was charged to, but for limits that were dropped since: {meter, cost}.
local function known_keys(holder)
  local found = {}
  for _, keys in ipairs({ holder.run[KEYS] or {}, holder.again }) do
    for place = 1, #keys, 4 do
      local meter = meters.find(keys[place], keys[place + 1] or nil)
      if meter and meter.epoch == keys[place + 2] then
        found[#found + 1] = { meter, keys[place + 3] }
      end
    end
  end
  return found
end

-- A start counts no more, neither where it was stamped nor as an open one.
local function take_out_of_all(holder, keys)
  for _, pair in ipairs(keys) do
    local meter, cost = pair[1], pair[2]
    if holder.run[GATE] == OPEN then
      open_up(meter, -cost)
    else
      for _, log in ipairs(logs_of(meter)) do
        take_out(meter, log[1], log[2], meter.states[log[1]], cost, holder.run[STARTED_AT] or 0)
      end
      meters.touch(meter)
    end
  end
end

local function starts_of(row)
  return step.prefix .. 'starts' .. SEP .. row.run[QUEUE]
end

-- A start as the log of its queue has it.
function late.start_record(row, at)
  return pack({ row.id, at, row.head[TASK], row.head[GROUP] or false, row.head[COST] })
end

-- A start did not happen.
local function drop_start(row)
  rows.complete(row)
  call('LREM', starts_of(row), -1, late.start_record(row, row.run[STARTED_AT]))
end

local function touch(holder)
  if holder.run[FENCE] then
    holder.dirty = true
  else
    permits.write_permit(holder)
  end
end

local function admits_late(meter, cost)
  if meter.hold_until > step.now or (step.head.lost_at and meters.safe_at(meter) > step.now) then
    return false
  end
  for place, part in ipairs(meter.parts) do
    if part[1] == 'rate' and rate.opens_at(meter, place, part, meter.states[place], cost + meter.open) > step.now then
      return false
    end
  end
  return true
end

-- Take the own charge of a start that is on time out and decide under present numbers and holds: only windows are asked
-- again. True when it is open now. A holder is a job or a permit.
function late.open_again(holder)
  local keys = known_keys(holder)
  take_out_of_all(holder, keys)
  for _, pair in ipairs(keys) do
    if not admits_late(pair[1], pair[2]) then
      return false
    end
  end
  for _, pair in ipairs(keys) do
    open_up(pair[1], pair[2])
    step.head.charges = step.head.charges + 1
  end
  holder.run[GATE] = OPEN
  touch(holder)
  return true
end

-- A job that was refused goes back to its place, as if it had not been claimed.
function late.hand_back(row)
  local keys = known_keys(row)
  drop_start(row)
  runs.end_run(row, 'released', step.now)
  late.look_again(keys)
end

-- What a start gave back is there for others.
function late.look_again(keys)
  for _, pair in ipairs(keys) do
    lanes.look_again_under(pair[1])
  end
  wakes.all()
end

-- Count a start from now on, or from an instant that has passed; said again, it changes nothing.
function late.begin(holder, at)
  at = at or step.now
  if holder.run[GATE] == BEGUN then
    return
  end
  local keys = known_keys(holder)
  take_out_of_all(holder, keys)
  for _, pair in ipairs(keys) do
    local meter, cost = pair[1], pair[2]
    step.head.charges = step.head.charges + 1
    for _, log in ipairs(logs_of(meter)) do
      put_in(meter, log[1], log[2], meter.states[log[1]], cost, at)
    end
    meters.touch(meter)
  end
  if holder.run[FENCE] then
    drop_start(holder)
    call('RPUSH', starts_of(holder), late.start_record(holder, at))
  end
  holder.run[STARTED_AT], holder.run[GATE] = at, BEGUN
  touch(holder)
  for _, pair in ipairs(keys) do
    runs.unpark(pair[1])
    runs.tell_awaiting(pair[1])
  end
end

-- A lease ends and nobody said that its open start began: it counts no more.
function late.abandon(holder)
  if holder.run[GATE] ~= OPEN then
    return
  end
  local keys = known_keys(holder)
  take_out_of_all(holder, keys)
  for _, pair in ipairs(keys) do
    runs.unpark(pair[1])
    runs.tell_awaiting(pair[1])
  end
end

-- Read the jobs of these leases in one go.
function late.load_held(leases)
  local ids = {}
  for place, lease in ipairs(leases) do
    ids[place] = lease[1]
  end
  rows.load(ids)
end

-- The job or permit whose lease {id, fence} this is, or nothing when it is lost; a permit's fence is 0.
function late.held(lease)
  local id, fence = lease[1], lease[2]
  local row = step.rows[id]
  if row then
    return row.run[STATE] == 3 and row.run[FENCE] == fence and row or nil
  end
  return fence == 0 and permits.permit(id) or nil
end

return late
