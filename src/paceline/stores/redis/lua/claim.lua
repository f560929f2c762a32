-- Step 2, claim: take back dead leases, let time pass, then start as many jobs as all limits allow.
local choosing = require('choosing')
local classes = require('classes')
local constants = require('constants')
local filing = require('filing')
local lanes = require('lanes')
local limits = require('limits')
local lines = require('lines')
local meters = require('meters')
local records = require('records')
local rows = require('rows')
local runs = require('runs')
local start = require('start')
local step = require('step')
local turns = require('turns')
local wakes = require('wakes')
local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
local max, min = math.max, math.min
local SEP, NEVER, ACTIVE, STARTS_KEPT = constants.SEP, constants.NEVER, constants.ACTIVE, constants.STARTS_KEPT
local MOVED_ANYWAY = 64 -- one claim moves two things of each kind per slot and so many more; then: ask again now
local STATE, FENCE, GUARD = records.STATE, records.FENCE, records.GUARD

-- The guards of the jobs, where any has one.
local function guards_of(started)
  local guards, is_guarded = {}, false
  for place, row in ipairs(started) do
    guards[place] = row.run[GUARD] or NEVER
    is_guarded = is_guarded or row.run[GUARD] ~= nil
  end
  return is_guarded and guards
end

local function give(started, lost, again)
  local head, needs_room = step.head, step.choosing.needs_room
  local numbers = { step.now, again, lost, needs_room, guards_of(started), head.charges, head.steps, step.ends.failed }
  local answer = { pack(numbers) }
  for place = 1, #started do
    rows.give_last(started[place], answer)
  end
  return answer
end

-- The same claim asked again, because its answer was lost: give those of its jobs that still run.
local function replay()
  local claim_id = step.args.claim_id
  local blob = claim_id ~= '' and call('HGET', step.prefix .. 'claims', step.args.worker)
  local last = blob and unpack_one(blob)
  if not last or last[1] ~= claim_id then
    return nil
  end
  local still = {}
  for place = 2, #last, 2 do
    local id, fence = last[place], last[place + 1]
    local row = rows.find(id)
    if row and row.run[STATE] == ACTIVE and row.run[FENCE] == fence then
      still[#still + 1] = row
    end
  end
  return still
end

local function remember_claim()
  local last = { step.args.claim_id }
  for _, row in ipairs(step.choosing.started) do
    last[#last + 1] = row.id
    last[#last + 1] = row.run[FENCE]
  end
  call('HSET', step.prefix .. 'claims', step.args.worker, pack(last))
end

-- The log of starts; the oldest go when there are many and no limit counts them any more.
local function log_starts(line)
  local key, started, kept = step.prefix .. 'starts' .. SEP .. line.name, line.started, 0
  for first = 1, #started, 1000 do
    kept = call('RPUSH', key, unpack(started, first, min(first + 999, #started)))
  end
  if kept > STARTS_KEPT + 10000 then
    local oldest, over = call('LRANGE', key, 0, 2 * #started), 0
    for place, blob in ipairs(oldest) do
      if unpack_one(blob)[2] < step.now - step.head.longest then
        over = place
      end
    end
    call('LTRIM', key, over, -1)
  end
end

-- Dead leases, delayed jobs that are due, blocked lanes whose time has come: each at most so many. A bound of its
-- own for each, and for each queue: however many of one kind there are, all others still start. Returns whether
-- anything moved, and whether more of it is left.
local function let_time_pass(asked, most)
  local number = runs.take_back(most)
  local moved, is_busy = number > 0, number >= most
  for _, line in ipairs(asked) do
    local promoted, opened = lines.promote_due(line, most), 0
    for _, cls in pairs(line.classes) do
      if cls.blocked_from <= step.now then
        opened = opened + filing.unblock_due(line, cls, most - opened)
      end
    end
    moved = moved or promoted + opened > 0
    is_busy = is_busy or promoted >= most or opened >= most
  end
  return moved, is_busy
end

-- The earliest instant at which a claim could give more than this one did, as far as time decides.
local function next_at(line)
  local at = lines.next_due(line)
  if line.paused then
    return at
  end
  for _, cls in ipairs(choosing.visible(line)) do
    if cls.waiting > 0 then
      local shared = classes.opens_at(cls)
      if shared >= NEVER then
        for _, meter in ipairs(classes.shared(cls)) do
          wakes.await(meter, line.name)
        end
      elseif turns.has_ready(line, cls) then
        at = min(at, shared)
      else
        at = min(at, max(shared, filing.next_blocked(line, cls)))
      end
    end
  end
  return at
end

-- When a claim could give more: a limit opens, a delay ends, a lease ends, an override ends.
local function ask_again_at(asked, idle)
  local at = min(runs.next_lease_end(), step.head.next_expiry)
  local this, also, stuck = step.choosing, start.also_opens_at(), 0
  for _, till in pairs(this.stuck) do
    stuck = max(stuck, till)
  end
  if max(also, stuck) >= NEVER then
    for _, meter in ipairs(this.also) do
      for _, line in ipairs(asked) do
        wakes.await(meter, line.name)
      end
    end
  end
  if not idle then
    return also <= step.now and min(at, step.now) or min(at, also)
  end
  filing.save()
  for _, line in ipairs(asked) do
    at = min(at, max(next_at(line), also, this.stuck[line.name] or 0))
  end
  -- Nothing is claimable now, so an instant that has passed can only be news that came with this very claim.
  return max(at, step.now)
end

-- Work is left that this claim had no slots for: one more sleeper may look.
local function pass_on(asked)
  filing.save()
  for _, line in ipairs(asked) do
    for _, cls in pairs(line.classes) do
      if cls.waiting > 0 and turns.has_ready(line, cls) then
        wakes.queue(line.name)
        break
      end
    end
  end
end

-- The queues that are asked for; a worker whose tasks are new there makes classes of its own.
local function asked_queues()
  local asked = {}
  for place, name in ipairs(step.args.queues) do
    asked[place] = lines.get(name)
    if step.args.tasks and classes.know(asked[place], step.args.tasks) then
      step.head.steps = step.head.steps + 1
    end
  end
  return asked
end

-- Whoever found less than it asked for sleeps from this step on.
local function sleep_or_get_up(idle, again)
  if idle and again > step.now then
    wakes.sleep(step.args.waker, step.args.queues)
  else
    wakes.get_up(step.args.waker, step.args.queues)
  end
end

-- Start what may start; returns the instant to ask again.
local function take(asked, has_finishes)
  local this, most = step.choosing, step.choosing.budget
  local moved, is_busy = let_time_pass(asked, most)
  if #step.head.reserved > 0 then
    start.serve_reserved()
  end
  start.take_turns(asked)
  if #this.started > 0 or has_finishes then
    -- A claim that did nothing needs no memory: asked again, it is simply asked.
    remember_claim()
  end
  for _, line in ipairs(asked) do
    if line.started then
      log_starts(line)
    end
  end
  if #this.started > 0 or has_finishes or moved or this.budget < most then
    step.head.steps = step.head.steps + 1
  end
  local idle = #this.started < step.args.slots
  local again = (is_busy or this.budget <= 0) and step.now or ask_again_at(asked, idle)
  for _, lane in ipairs(this.skipped) do
    lanes.unpark(lane)
  end
  if not idle then
    pass_on(asked)
  end
  if step.args.waker then
    sleep_or_get_up(idle, again)
  end
  return again
end

local function work()
  local args = step.args
  choosing.begin(2 * args.slots + MOVED_ANYWAY)
  if step.head.woken and args.waker then
    wakes.came(args.waker)
  end
  local replayed = replay()
  if replayed then
    return give(replayed, {}, step.now)
  end
  for place, name in ipairs(args.also or {}) do
    step.choosing.also[place] = meters.get(limits.require(name).name, nil)
  end
  local lost = args.finishes and runs.finish(args.finishes) or {}
  local again = take(asked_queues(), args.finishes ~= nil)
  return give(step.choosing.started, lost, again)
end

return { work = work, looks = true }
