-- What kinds that are replaced leave behind: the states to go on with, and a log of what none of the new ones counts.
local constants = require('constants')
local kinds = require('kinds')
local rate = require('rate')
local ceil, max = math.ceil, math.max
local LAST_AT, COST = constants.LAST_AT, constants.COST
local new_window = rate.new_window

-- What earlier kinds of a key counted and none of its present ones does: a log that is charged and never asked,
-- {'memory', max, window, spacing}; spacing is the longest interval between starts of cost 1.
local memory = {
  new_state = rate.new_state,
  charge = rate.charge,
  allowed = rate.allowed,
  last_start = rate.last_start,
}

function memory.forget_after(part, state, meter, place)
  if state[LAST_AT] < 0 then
    return 0
  end
  return state[LAST_AT] + max(part[3], part[4] * rate.last_cost(meter, place, state))
end

local function is_log(part)
  return part[1] == 'rate' or part[1] == 'memory'
end

-- How many starts these kinds must know, for how long, and the longest interval between two of them.
local function reach(parts)
  local most, window, spacing = 1, 0, 0
  for _, part in ipairs(parts) do
    if is_log(part) then
      most, window = max(most, part[2]), max(window, part[3])
    elseif part[1] == 'delay' then
      window = max(window, part[2])
    end
    if part[1] == 'memory' then
      spacing = max(spacing, part[4])
    elseif part[1] == 'spacing' then
      spacing = max(spacing, ceil(part[3] / part[2]))
    end
  end
  return most, window, spacing
end

-- Those old parts that remember a start, and others that will rule again.
function memory.remembering(parts, states, beneath)
  local found = { unpack(beneath or {}) }
  for place, part in ipairs(parts) do
    if part[1] ~= 'concurrency' and kinds[part[1]].last_start(states[place]) >= 0 then
      found[#found + 1] = part
    end
  end
  return found
end

-- The log to keep beside these parts for others, which ruled before or rule again when an override ends: none where
-- the parts themselves remember as much.
function memory.remember(parts, others, may_be_forgotten)
  local has, remembers = {}, false
  for _, part in ipairs(parts) do
    has[part[1]] = true
  end
  for _, part in ipairs(others) do
    remembers = remembers or part[1] ~= 'concurrency'
  end
  if not remembers or (has.rate and not may_be_forgotten) then
    return nil
  end
  local most, window, spacing = reach(others)
  local _, its_window, its_spacing = reach(parts)
  local is_known = has.rate or (most <= 1 and (has.spacing or (has.delay and spacing == 0)))
  if is_known and (not may_be_forgotten or (window <= its_window and spacing <= its_spacing)) then
    return nil
  end
  return { 'memory', most, window, spacing }
end

function memory.same_memory(one, other)
  return (not one and not other) or (one and other and one[2] == other[2] and one[3] == other[3] and one[4] == other[4])
end

-- Which of the old parts one goes on from: of those that remember, the one that remembers the most.
local function goes_on_from(part, parts, states)
  local best, rank, allowed, last
  for index, was in ipairs(parts) do
    if was[1] ~= 'concurrency' and kinds[was[1]].last_start(states[index]) >= 0 then
      local its_rank = ((is_log(part) and is_log(was)) or was[1] == part[1]) and 3 or (is_log(was) and 2 or 1)
      local its_allowed, its_last = kinds[was[1]].allowed(was), kinds[was[1]].last_start(states[index])
      local is_more = not best or its_rank > rank
      if its_rank == rank then
        is_more = its_allowed > allowed or (its_allowed == allowed and its_last > last)
      end
      if is_more then
        best, rank, allowed, last = index, its_rank, its_allowed, its_last
      end
    end
  end
  return best, last
end

local function guard_of(part)
  return part[1] == 'rate' and part[4] or 0
end

-- Under a shorter guard, starts whose handlers may begin later than that count for as long as before.
local function delayed(by, numbers, ats, sums)
  if by <= 0 then
    return numbers, ats, sums
  end
  local later = {}
  for index, at in ipairs(ats) do
    later[index] = at + by
  end
  local total, base, lost_at = unpack(numbers)
  return { total, base, base > 0 and lost_at + by or lost_at }, later, sums
end

-- The state to go on with when `part` replaces others; of logs `dumped` has what they knew.
function memory.continue(meter, part, place, parts, states, dumped)
  local best, last = goes_on_from(part, parts, states)
  if part[1] == 'concurrency' or not best then
    return kinds[part[1]].new_state(part)
  end
  if is_log(part) and dumped[best] then
    local by = guard_of(parts[best]) - guard_of(part)
    return rate.load(meter, place, part, delayed(by, unpack(dumped[best])))
  end
  local cost = states[best][COST]
  if dumped[best] then
    local numbers, _, sums = unpack(dumped[best])
    cost = numbers[1] - (sums[#sums - 1] or numbers[2])
  end
  if not is_log(part) then
    return { last, 0, cost }
  end
  if last < 0 then
    return new_window(part[2])
  end
  return rate.load(meter, place, part, { cost, 0, 0 }, { last }, { cost })
end

return memory
