-- The kinds of limits: each says when it opens, counts a start, and goes on under other numbers.
-- A part is {word, ...}: rate {max, window, guard, whether nobody chose the guard}, concurrency {max}, delay {gap},
-- spacing {max, per}.
local kinds = {}

-- A rate's state: what was spent, what was folded away and when the youngest of it was, how many entries were made,
-- where the search for the next one to leave begins, the last instant, the capacity of the ring, and (where something
-- was taken out) the first entry that was not folded then.
local TOTAL, BASE, LOST_AT, MADE, FIRST, LAST_AT, CAPACITY, FOLDED = 1, 2, 3, 4, 5, 6, 7, 8
-- The state of the kinds that remember the last start only.
local AT, CARRY, COST = 1, 2, 3

local function ring_key(meter, place)
  return prefix .. 'ring' .. SEP .. meter.name .. SEP .. (meter.group or '') .. SEP .. place
end

local function entries_of(meter, place)
  local entries = meter.rings[place]
  if not entries then
    entries = { at = {}, spent = {}, dirty = {} }
    meter.rings[place] = entries
  end
  return entries
end

local function read_entry(meter, place, state, index)
  local entries = entries_of(meter, place)
  if not entries.at[index] then
    local from = (index % state[CAPACITY]) * 16
    local raw = call('GETRANGE', ring_key(meter, place), from, from + 15)
    entries.at[index], entries.spent[index] = from_bytes('>dd', raw)
  end
  return entries.at[index], entries.spent[index]
end

local function write_entry(meter, place, index, at, spent)
  local entries = entries_of(meter, place)
  entries.at[index], entries.spent[index] = at, spent
  entries.dirty[index] = true
end

-- The oldest entry of a full ring only says what was spent before the others, and so does the last one that was folded.
local function first_entry(state)
  return max(state[MADE] - state[CAPACITY] + 1, state[FOLDED] or 0, 0)
end

-- The first entry from `low` on with at least so much spent; there is one.
local function search_spent(meter, place, state, low, spent)
  local high, step = low, 1
  while true do
    if high > state[MADE] - 1 then
      high = state[MADE] - 1
    end
    local _, until_here = read_entry(meter, place, state, high)
    if until_here >= spent then
      break
    end
    low, high, step = high + 1, high + step, step * 2
  end
  while low < high do
    local middle = floor((low + high) / 2)
    local _, until_here = read_entry(meter, place, state, middle)
    if until_here >= spent then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function new_window(most)
  return { 0, 0, 0, 0, 0, -1, most + min(most, 1000) + 32 }
end

local rate = {}
kinds.rate = rate

function rate.new_state(part)
  return new_window(part[2])
end

function rate.opens_at(meter, place, part, state, cost)
  local must_leave = state[TOTAL] - part[2] + cost
  if must_leave <= 0 then
    return 0
  end
  if must_leave > state[TOTAL] then
    return NEVER
  end
  local low = first_entry(state)
  if must_leave <= state[BASE] and (low == 0 or low == state[FOLDED]) then
    return state[LOST_AT] + part[3]
  end
  if state[FIRST] > low then
    low = state[FIRST]
  end
  local index = search_spent(meter, place, state, low, must_leave)
  if cost == 1 then
    state[FIRST] = index
  end
  return (read_entry(meter, place, state, index)) + part[3]
end

function rate.charge(meter, place, part, state, cost, at)
  state[TOTAL] = state[TOTAL] + cost
  if state[MADE] > 0 and state[LAST_AT] >= at then
    write_entry(meter, place, state[MADE] - 1, state[LAST_AT], state[TOTAL])
    return
  end
  write_entry(meter, place, state[MADE], at, state[TOTAL])
  state[MADE] = state[MADE] + 1
  state[LAST_AT] = at
end

function rate.used(meter, place, part, state)
  local first, edge = first_entry(state), now - part[3]
  local low, high = first, state[MADE]
  while low < high do
    local middle = floor((low + high) / 2)
    if read_entry(meter, place, state, middle) > edge then
      high = middle
    else
      low = middle + 1
    end
  end
  if low > first then
    local _, gone = read_entry(meter, place, state, low - 1)
    return state[TOTAL] - gone
  end
  local lost_at, base = state[LOST_AT], state[BASE]
  if first > 0 then
    lost_at, base = read_entry(meter, place, state, first - 1)
  end
  local known = state[TOTAL] - base
  -- What was folded is not known one by one: as long as it may count, the key shows as full.
  if base > 0 and lost_at > edge then
    return min(state[TOTAL], max(known, part[2]))
  end
  return known
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
  local first, before = first_entry(state), state[BASE]
  if state[MADE] > 1 and (state[MADE] - 1 > first or first > 0) then
    local _, spent = read_entry(meter, place, state, state[MADE] - 2)
    before = spent
  end
  return state[TOTAL] - before
end

-- All that a decision under these numbers can ask for: {total, base, lost_at}, instants, sums.
function rate.dump(meter, place, part, state)
  local entries, first, made, capacity = entries_of(meter, place), first_entry(state), state[MADE], state[CAPACITY]
  local raw = made > 0 and call('GET', ring_key(meter, place)) or ''
  local function entry(index)
    if entries.at[index] then
      return entries.at[index], entries.spent[index]
    end
    return from_bytes('>dd', raw, (index % capacity) * 16 + 1)
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
  local state = new_window(part[2])
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
  meter.rings[place] = nil
  if #packed > 0 then
    call('SET', ring_key(meter, place), concat(packed))
  end
  return state
end

function rate.save(meter)
  for place, entries in pairs(meter.rings) do
    for index in pairs(entries.dirty) do
      local from = (index % meter.states[place][CAPACITY]) * 16
      call('SETRANGE', ring_key(meter, place), from, to_bytes('>dd', entries.at[index], entries.spent[index]))
    end
    entries.dirty = {}
  end
end

local concurrency = {}
kinds.concurrency = concurrency

function concurrency.new_state()
  return false
end

function concurrency.used(meter)
  return meter.in_flight
end

function concurrency.allowed(part)
  return part[2]
end

function concurrency.forget_after()
  return 0
end

-- a · b as quotient and remainder of m, exact where doubles alone are not
local function divide_product(a, b, m)
  if a * b < 9007199254740992 then
    local quotient = floor(a * b / m)
    local remainder = a * b - quotient * m
    if remainder < 0 then
      quotient, remainder = quotient - 1, remainder + m
    elseif remainder >= m then
      quotient, remainder = quotient + 1, remainder - m
    end
    return quotient, remainder
  end
  local quotient, remainder, bit = 0, 0, 1
  while bit * 2 <= a do
    bit = bit * 2
  end
  while bit >= 1 do
    local step = 0
    if a >= bit then
      a = a - bit
      step = b
    end
    local whole = floor(step / m)
    quotient = quotient * 2 + whole
    remainder = remainder * 2 + (step - whole * m)
    while remainder >= m do
      quotient, remainder = quotient + 1, remainder - m
    end
    bit = bit / 2
  end
  return quotient, remainder
end

local last_start = {}

function last_start.new_state()
  return { -1, 0, 1 }
end

function last_start.used(meter, place, part, state)
  return kinds[part[1]].opens_at(meter, place, part, state, 1) > now and 1 or 0
end

function last_start.allowed()
  return 1
end

function last_start.forget_after(part, state)
  -- Not at that very instant: a start that is exactly on time goes on from the fraction.
  return state[AT] >= 0 and kinds[part[1]].opens_at(nil, nil, part, state, 1) + 1 or 0
end

function last_start.last_start(state)
  -- A start with a fraction was rounded up to the next microsecond.
  return state[CARRY] > 0 and state[AT] + 1 or state[AT]
end

local delay = {
  new_state = last_start.new_state,
  used = last_start.used,
  allowed = last_start.allowed,
  forget_after = last_start.forget_after,
  last_start = last_start.last_start,
}
kinds.delay = delay

function delay.opens_at(_, _, part, state)
  return state[AT] < 0 and 0 or state[AT] + part[2]
end

function delay.charge(_, _, _, state, _, at)
  state[AT], state[CARRY], state[COST] = max(at, state[AT]), 0, 1
end

local spacing = {
  new_state = last_start.new_state,
  used = last_start.used,
  allowed = last_start.allowed,
  forget_after = last_start.forget_after,
  last_start = last_start.last_start,
}
kinds.spacing = spacing

-- When the next start is due: a whole instant, and a fraction in units of 1 / max microseconds.
local function due(part, state)
  local whole, fraction = divide_product(state[COST], part[3], part[2])
  fraction = fraction + state[CARRY]
  if fraction >= part[2] then
    whole, fraction = whole + 1, fraction - part[2]
  end
  return state[AT] + whole, fraction
end

function spacing.opens_at(_, _, part, state)
  if state[AT] < 0 then
    return 0
  end
  local whole, fraction = due(part, state)
  return fraction > 0 and whole + 1 or whole
end

function spacing.charge(_, _, part, state, cost, at)
  if state[AT] >= 0 then
    local whole, fraction = due(part, state)
    local opens = fraction > 0 and whole + 1 or whole
    if opens == at then
      -- On time: go on from the exact fraction, so that 7 starts per 60 s take 60 s and not 3 microseconds more.
      state[AT], state[CARRY], state[COST] = whole, fraction, cost
      return
    end
    if opens > at then
      -- Forced in too early: whole intervals from here, and not before it would have opened anyway.
      local quotient, remainder = divide_product(whole - at, part[2], part[3])
      remainder = remainder + fraction
      cost = max(cost, quotient + ceil(remainder / part[3]))
    end
  end
  state[AT], state[CARRY], state[COST] = max(at, state[AT]), 0, cost
end
