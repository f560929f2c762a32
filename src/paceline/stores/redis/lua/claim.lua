-- Step 2, claim: take back dead leases, let time pass, then start as many jobs as all limits allow.
local STARTS_KEPT = 100000

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
  answer[1] = pack({ now, again, lost, choosing.needs_room, guards_of(started), head.charges, head.steps, runs.failed })
  for _, row in ipairs(started) do
    rows.give_last(row, answer)
  end
  return answer
end

-- The same claim asked again, because its answer was lost: give those of its jobs that still run.
local function replay()
  local blob = args.claim_id ~= '' and call('HGET', prefix .. 'claims', args.worker)
  local last = blob and unpack_one(blob)
  if not last or last[1] ~= args.claim_id then
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
  local last = { args.claim_id }
  for _, row in ipairs(choosing.started) do
    last[#last + 1] = row.id
    last[#last + 1] = row.fence
  end
  call('HSET', prefix .. 'claims', args.worker, pack(last))
end

-- The log of starts; the oldest go when there are many and no limit counts them any more.
local function log_starts(line)
  local key = prefix .. 'starts' .. SEP .. line.name
  local kept = call('RPUSH', key, unpack(line.started, 1, min(#line.started, 1000)))
  for first = 1001, #line.started, 1000 do
    kept = call('RPUSH', key, unpack(line.started, first, min(first + 999, #line.started)))
  end
  if kept > STARTS_KEPT + 10000 then
    local oldest = call('LRANGE', key, 0, 2 * #line.started)
    local over = 0
    for place, blob in ipairs(oldest) do
      if unpack_one(blob)[2] < now - head.longest then
        over = place
      end
    end
    call('LTRIM', key, over, -1)
  end
end

-- Dead leases, delayed jobs that are due, blocked lanes whose time has come: each at most so many. A bound of its own for
-- each, and for each queue: however many of one kind there are, all others still start. Returns whether anything moved,
-- and whether more of it is left.
local function let_time_pass(asked, most)
  local number = runs.take_back(most)
  local moved, is_busy = number > 0, number >= most
  for _, line in ipairs(asked) do
    local promoted, opened = lines.promote_due(line, most), 0
    for _, cls in pairs(line.classes) do
      if cls.blocked_from <= now then
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
  if head.woken and args.waker then
    wakes.came(args.waker)
  end
  local replayed = replay()
  if replayed then
    return give(replayed, {}, now)
  end
  choosing.room = args.room
  for place, name in ipairs(args.also or {}) do
    choosing.also[place] = meters.get(limits.require(name).name, nil)
  end
  local lost = args.finishes and runs.finish(args.finishes) or {}
  local asked = {}
  for place, name in ipairs(args.queues) do
    asked[place] = lines.get(name)
    if args.tasks and lines.know(asked[place], args.tasks) then
      head.steps = head.steps + 1
    end
  end
  local most = 2 * args.slots + 64
  local moved, is_busy = let_time_pass(asked, most)
  choosing.budget = most
  if #head.reserved > 0 then
    serve_reserved()
  end
  take_turns(asked)
  if #choosing.started > 0 or args.finishes then
    -- A claim that did nothing needs no memory: asked again, it is simply asked.
    remember_claim()
  end
  for _, line in ipairs(asked) do
    if line.started then
      log_starts(line)
    end
  end
  if #choosing.started > 0 or args.finishes or moved or choosing.budget < most then
    head.steps = head.steps + 1
  end
  local idle = #choosing.started < args.slots
  local again = (is_busy or choosing.budget <= 0) and now or ask_again_at(asked, idle)
  for _, lane in ipairs(choosing.skipped) do
    lanes.unpark(lane)
  end
  if not idle then
    pass_on(asked)
  end
  if args.waker then
    if idle and again > now then
      wakes.sleep(args.waker, args.queues)
    else
      wakes.get_up(args.waker, args.queues)
    end
  end
  return give(choosing.started, lost, again)
end
step('claim', work, true)
