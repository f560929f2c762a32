-- Step 2, claim: take back dead leases, let time pass, then start as many jobs as all limits allow.
local choosing = require('choosing')
local constants = require('constants')
local lanes = require('lanes')
local limits = require('limits')
local lines = require('lines')
local meters = require('meters')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local call, pack, unpack_one, min = redis.call, cmsgpack.pack, cmsgpack.unpack, math.min
local begin_choosing, serve_reserved = choosing.begin_choosing, choosing.serve_reserved
local take_turns, ask_again_at, pass_on = choosing.take_turns, choosing.ask_again_at, choosing.pass_on
local SEP, NEVER = constants.SEP, constants.NEVER

local STARTS_KEPT = constants.STARTS_KEPT

-- The guards of the jobs, where any has one.
local function guards_of(started)
  local guards, is_guarded = {}, false
  for place, row in ipairs(started) do
    guards[place] = row.guard
    is_guarded = is_guarded or row.guard < NEVER
  end
  return is_guarded and guards
end

local function give(started, lost, again)
  local ids, answer = {}, {}
  for place, row in ipairs(started) do
    ids[place] = row.id
  end
  rows.load_more(ids)
  answer[1] = pack({
    step.now,
    again,
    lost,
    step.choosing.needs_room,
    guards_of(started),
    step.head.charges,
    step.head.steps,
    step.ends.failed,
  })
  for _, row in ipairs(started) do
    rows.give_last(row, answer)
  end
  return answer
end

-- The same claim asked again, because its answer was lost: give those of its jobs that still run.
local function replay()
  local blob = step.args.claim_id ~= '' and call('HGET', step.prefix .. 'claims', step.args.worker)
  local last = blob and unpack_one(blob)
  if not last or last[1] ~= step.args.claim_id then
    return nil
  end
  local still = {}
  for place = 2, #last, 2 do
    local row = rows.find(last[place])
    if row and row.state == 3 and row.fence == last[place + 1] then
      still[#still + 1] = row
    end
  end
  return still
end

local function remember_claim()
  local last = { step.args.claim_id }
  for _, row in ipairs(step.choosing.started) do
    last[#last + 1] = row.id
    last[#last + 1] = row.fence
  end
  call('HSET', step.prefix .. 'claims', step.args.worker, pack(last))
end

-- The log of starts; the oldest go when there are many and no limit counts them any more.
local function log_starts(line)
  local key = step.prefix .. 'starts' .. SEP .. line.name
  local kept = call('RPUSH', key, unpack(line.started, 1, min(#line.started, 1000)))
  for first = 1001, #line.started, 1000 do
    kept = call('RPUSH', key, unpack(line.started, first, min(first + 999, #line.started)))
  end
  if kept > STARTS_KEPT + 10000 then
    local oldest = call('LRANGE', key, 0, 2 * #line.started)
    local over = 0
    for place, blob in ipairs(oldest) do
      if unpack_one(blob)[2] < step.now - step.head.longest then
        over = place
      end
    end
    call('LTRIM', key, over, -1)
  end
end

-- Dead leases, delayed jobs that are due, blocked lanes whose time has come: each at most so many. A bound of its
-- own for
-- each, and for each queue: however many of one kind there are, all others still start. Returns whether anything moved,
-- and whether more of it is left.
local function let_time_pass(asked, most)
  local number = runs.take_back(most)
  local moved, is_busy = number > 0, number >= most
  for _, line in ipairs(asked) do
    local promoted, opened = lines.promote_due(line, most), 0
    for _, cls in pairs(line.classes) do
      if cls.blocked_from <= step.now then
        opened = opened + lanes.unblock_due(line, cls, most - opened)
      end
    end
    moved = moved or promoted + opened > 0
    is_busy = is_busy or promoted >= most or opened >= most
  end
  return moved, is_busy
end

local function work()
  begin_choosing()
  if step.head.woken and step.args.waker then
    wakes.came(step.args.waker)
  end
  local replayed = replay()
  if replayed then
    return give(replayed, {}, step.now)
  end
  step.choosing.room = step.args.room
  for place, name in ipairs(step.args.also or {}) do
    step.choosing.also[place] = meters.get(limits.require(name).name, nil)
  end
  local lost = step.args.finishes and runs.finish(step.args.finishes) or {}
  local asked = {}
  for place, name in ipairs(step.args.queues) do
    asked[place] = lines.get(name)
    if step.args.tasks and lines.know(asked[place], step.args.tasks) then
      step.head.steps = step.head.steps + 1
    end
  end
  local most = 2 * step.args.slots + 64
  local moved, is_busy = let_time_pass(asked, most)
  step.choosing.budget = most
  if #step.head.reserved > 0 then
    serve_reserved()
  end
  take_turns(asked)
  if #step.choosing.started > 0 or step.args.finishes then
    -- A claim that did nothing needs no memory: asked again, it is simply asked.
    remember_claim()
  end
  for _, line in ipairs(asked) do
    if line.started then
      log_starts(line)
    end
  end
  if #step.choosing.started > 0 or step.args.finishes or moved or step.choosing.budget < most then
    step.head.steps = step.head.steps + 1
  end
  local idle = #step.choosing.started < step.args.slots
  local again = (is_busy or step.choosing.budget <= 0) and step.now or ask_again_at(asked, idle)
  for _, lane in ipairs(step.choosing.skipped) do
    lanes.unpark(lane)
  end
  if not idle then
    pass_on(asked)
  end
  if step.args.waker then
    if idle and again > step.now then
      wakes.sleep(step.args.waker, step.args.queues)
    else
      wakes.get_up(step.args.waker, step.args.queues)
    end
  end
  return give(step.choosing.started, lost, again)
end

return { work = work, looks = true }
