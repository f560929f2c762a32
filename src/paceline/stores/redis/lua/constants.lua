-- Names for the numbers that several files know.
return {
  SEP = '\31', -- no name has control characters, so joined names stay apart
  NEVER = 4611686018427387904,
  ONE = 65536, -- the turn of one start
  MAX_CRASHES = 3,
  STARTS_KEPT = 100000,
  ORDERS_FROM = 4503599627370496, -- what makes an order that is below zero a positive number
  -- the states of a job
  WAITS = 1,
  DELAYED = 2,
  ACTIVE = 3,
  COMPLETED = 4,
  FAILED = 5,
  CANCELLED = 6,
  -- the states of a lane
  READY = 1,
  BLOCKED = 2,
  PARKED = 3,
  PAUSED = 4,
  -- the gate of a start: it counts where it was stamped, in every window, or where its handler began
  ON_TIME = 0,
  OPEN = 1,
  BEGUN = 2,
  -- the state of a rate
  TOTAL = 1,
  BASE = 2,
  LOST_AT = 3,
  MADE = 4,
  FIRST = 5,
  LAST_AT = 6,
  CAPACITY = 7,
  FOLDED = 8,
  -- the state of the kinds that remember the last start only
  AT = 1,
  CARRY = 2,
  COST = 3,
}
