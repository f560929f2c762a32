-- The kinds of limits: each says when it opens, counts a start, and goes on under other numbers.
-- A part is {word, ...}: rate {max, window, guard, whether nobody chose the guard}, concurrency {max}, delay {gap},
-- spacing {max, per}.
local constants = require('constants')
local memory = require('memory')
local rate = require('rate')
local step = require('step')
local floor, ceil, max = math.floor, math.ceil, math.max
local AT, CARRY, COST = constants.AT, constants.CARRY, constants.COST

local kinds = { rate = rate, memory = memory }

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
    local added = 0
    if a >= bit then
      a = a - bit
      added = b
    end
    local whole = floor(added / m)
    quotient = quotient * 2 + whole
    remainder = remainder * 2 + (added - whole * m)
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
  return kinds[part[1]].opens_at(meter, place, part, state, 1) > step.now and 1 or 0
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

return kinds
