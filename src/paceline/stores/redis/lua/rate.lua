-- A rate: a cumulative log of starts in a ring. Its state is what was spent (TOTAL), what was folded away (BASE) and
-- when the youngest of it was (LOST_AT), how many entries were made (MADE), where the search for the next one to
-- leave begins (FIRST), the last instant (LAST_AT), the capacity of the ring, and (where something was taken out) the
-- first entry that was not folded then (FOLDED). A part is {'rate', max, window, guard, whether nobody chose the
-- guard}.
local constants = require('constants')
local step = require('step')
local call, to_bytes, from_bytes = redis.call, struct.pack, struct.unpack
local floor, max, min, concat = math.floor, math.max, math.min, table.concat
local SEP, NEVER = constants.SEP, constants.NEVER
local TOTAL, BASE, LOST_AT, MADE = constants.TOTAL, constants.BASE, constants.LOST_AT, constants.MADE
local FIRST, LAST_AT, CAPACITY, FOLDED = constants.FIRST, constants.LAST_AT, constants.CAPACITY, constants.FOLDED
local ENTRY = 16 -- bytes: an instant, and what was spent until then

local rate = {}

function rate.ring_key(meter, place)
  return step.prefix .. 'ring' .. SEP .. meter.name .. SEP .. (meter.group or '') .. SEP .. place
end

-- What a step knows of a ring: the one entry that a start makes or changes, and others where it needs more.
local function entries_of(meter, place)
  local rings = meter.rings
  if not rings then
    rings = {}
    meter.rings = rings
  end
  local entries = rings[place]
  if not entries then
    entries = { tail = -1, tail_at = 0, tail_spent = 0, at = nil, spent = nil, dirty = nil }
    rings[place] = entries
  end
  return entries
end

local function known(entries, index)
  if entries.tail == index then
    return entries.tail_at, entries.tail_spent
  end
  if entries.at and entries.at[index] then
    return entries.at[index], entries.spent[index]
  end
end

local function keep(entries, index, at, spent, is_dirty)
  if not entries.at then
    entries.at, entries.spent, entries.dirty = {}, {}, {}
  end
  entries.at[index], entries.spent[index] = at, spent
  entries.dirty[index] = is_dirty or entries.dirty[index]
end

function rate.read_entry(meter, place, state, index)
  local entries = entries_of(meter, place)
  local at, spent = known(entries, index)
  if not at then
    local from = (index % state[CAPACITY]) * ENTRY
    local raw = call('GETRANGE', rate.ring_key(meter, place), from, from + ENTRY - 1)
    at, spent = from_bytes('>dd', raw)
    keep(entries, index, at, spent)
  end
  return at, spent
end

function rate.write_entry(meter, place, index, at, spent)
  local entries = entries_of(meter, place)
  if entries.tail < 0 then
    entries.tail = index
    if entries.at then
      entries.at[index], entries.spent[index], entries.dirty[index] = nil, nil, nil
    end
  end
  if entries.tail == index then
    entries.tail_at, entries.tail_spent = at, spent
  else
    keep(entries, index, at, spent, true)
  end
end

-- The last entry is gone.
function rate.drop_entry(meter, place, index)
  local entries = entries_of(meter, place)
  if entries.tail == index then
    entries.tail = -1
  end
  if entries.at then
    entries.at[index], entries.spent[index], entries.dirty[index] = nil, nil, nil
  end
end

-- The oldest entry of a full ring only says what was spent before the others, and so does the last one that was folded.
function rate.first_entry(state)
  return max(state[MADE] - state[CAPACITY] + 1, state[FOLDED] or 0, 0)
end

-- The first entry from `low` on with at least so much spent; there is one.
function rate.search_spent(meter, place, state, low, spent)
  local high, stride = low, 1
  while true do
    if high > state[MADE] - 1 then
      high = state[MADE] - 1
    end
    local _, until_here = rate.read_entry(meter, place, state, high)
    if until_here >= spent then
      break
    end
    low, high, stride = high + 1, high + stride, stride * 2
  end
  while low < high do
    local middle = floor((low + high) / 2)
    local _, until_here = rate.read_entry(meter, place, state, middle)
    if until_here >= spent then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

function rate.new_window(most)
  return { 0, 0, 0, 0, 0, -1, most + min(most, 1000) + 32 }
end

function rate.new_state(part)
  return rate.new_window(part[2])
end

function rate.opens_at(meter, place, part, state, cost)
  local must_leave = state[TOTAL] - part[2] + cost
  if must_leave <= 0 then
    return 0
  end
  if must_leave > state[TOTAL] then
    return NEVER
  end
  local low = rate.first_entry(state)
  if must_leave <= state[BASE] and (low == 0 or low == state[FOLDED]) then
    return state[LOST_AT] + part[3]
  end
  if state[FIRST] > low then
    low = state[FIRST]
  end
  local index = rate.search_spent(meter, place, state, low, must_leave)
  if cost == 1 then
    state[FIRST] = index
  end
  return (rate.read_entry(meter, place, state, index)) + part[3]
end

-- How many starts of cost 1 are admitted now, one after the other; perhaps more, if it is any.
function rate.room(meter, place, part, state)
  local most, total = part[2], state[TOTAL]
  local must_leave = total - most + 1
  if must_leave <= 0 then
    return 1 - must_leave
  end
  if rate.opens_at(meter, place, part, state, 1) > step.now then
    return 0
  end
  local low = rate.first_entry(state)
  if must_leave <= state[BASE] and (low == 0 or low == state[FOLDED]) then
    return most - total + state[BASE]
  end
  local edge, index, stride = step.now - part[3], state[FIRST], 1
  while index + stride < state[MADE] and rate.read_entry(meter, place, state, index + stride) <= edge do
    index, stride = index + stride, stride * 2
  end
  local _, gone = rate.read_entry(meter, place, state, index)
  return most - total + gone
end

function rate.charge(meter, place, _, state, cost, at)
  state[TOTAL] = state[TOTAL] + cost
  if state[MADE] > 0 and state[LAST_AT] >= at then
    rate.write_entry(meter, place, state[MADE] - 1, state[LAST_AT], state[TOTAL])
    return
  end
  rate.write_entry(meter, place, state[MADE], at, state[TOTAL])
  state[MADE] = state[MADE] + 1
  state[LAST_AT] = at
end

function rate.used(meter, place, part, state)
  local first, edge = rate.first_entry(state), step.now - part[3]
  local low, high = first, state[MADE]
  while low < high do
    local middle = floor((low + high) / 2)
    if rate.read_entry(meter, place, state, middle) > edge then
      high = middle
    else
      low = middle + 1
    end
  end
  if low > first then
    local _, gone = rate.read_entry(meter, place, state, low - 1)
    return state[TOTAL] - gone
  end
  local lost_at, base = state[LOST_AT], state[BASE]
  if first > 0 then
    lost_at, base = rate.read_entry(meter, place, state, first - 1)
  end
  local spent = state[TOTAL] - base
  -- What was folded is not known one by one: as long as it may count, the key shows as full.
  if base > 0 and lost_at > edge then
    return min(state[TOTAL], max(spent, part[2]))
  end
  return spent
end

function rate.allowed(part)
  return part[2]
end

function rate.forget_after(part, state)
  return state[LAST_AT] >= 0 and state[LAST_AT] + part[3] or 0
end

function rate.last_start(state)
  return state[LAST_AT]
end

-- What was charged at the last start.
function rate.last_cost(meter, place, state)
  local first, before = rate.first_entry(state), state[BASE]
  if state[MADE] > 1 and (state[MADE] - 1 > first or first > 0) then
    local _, spent = rate.read_entry(meter, place, state, state[MADE] - 2)
    before = spent
  end
  return state[TOTAL] - before
end

-- All that a decision under these numbers can ask for: {total, base, lost_at}, instants, sums.
function rate.dump(meter, place, part, state)
  local entries, first, made = entries_of(meter, place), rate.first_entry(state), state[MADE]
  local raw = made > 0 and call('GET', rate.ring_key(meter, place)) or ''
  local function entry(index)
    local at, spent = known(entries, index)
    if at then
      return at, spent
    end
    return from_bytes('>dd', raw, (index % state[CAPACITY]) * ENTRY + 1)
  end
  local base, lost_at = state[BASE], state[LOST_AT]
  if first > 0 then
    lost_at, base = entry(first - 1)
  end
  local ats, sums = {}, {}
  for index = first, made - 1 do
    local at, spent = entry(index)
    if spent <= state[TOTAL] - part[2] then
      base, lost_at = spent, at
    else
      ats[#ats + 1], sums[#sums + 1] = at, spent
    end
  end
  return { state[TOTAL], base, lost_at }, ats, sums
end

-- The inverse; the ring is written at once, because it may be long.
function rate.load(meter, place, part, numbers, ats, sums)
  local state = rate.new_window(part[2])
  state[TOTAL], state[BASE], state[LOST_AT] = numbers[1], numbers[2], numbers[3]
  local skip = max(#ats - state[CAPACITY], 0)
  if skip > 0 then
    state[BASE], state[LOST_AT] = sums[skip], ats[skip]
  end
  local packed = {}
  for index = skip + 1, #ats do
    packed[#packed + 1] = to_bytes('>dd', ats[index], sums[index])
  end
  state[MADE] = #packed
  if #packed > 0 then
    state[LAST_AT] = ats[#ats]
  end
  if meter.rings then
    meter.rings[place] = nil
  end
  if #packed > 0 then
    call('SET', rate.ring_key(meter, place), concat(packed))
  end
  return state
end

local function write(meter, place, index, at, spent)
  local from = (index % meter.states[place][CAPACITY]) * ENTRY
  call('SETRANGE', rate.ring_key(meter, place), from, to_bytes('>dd', at, spent))
end

function rate.save(meter)
  for place, entries in pairs(meter.rings) do
    if entries.tail >= 0 then
      write(meter, place, entries.tail, entries.tail_at, entries.tail_spent)
    end
    for index in pairs(entries.dirty or {}) do
      write(meter, place, index, entries.at[index], entries.spent[index])
    end
    entries.dirty = entries.dirty and {}
  end
end

return rate
