-- The ends of runs: free the slots, and decide where the job goes.
local commands = require('commands')
local complete = require('complete')
local constants = require('constants')
local holds = require('holds')
local lanes = require('lanes')
local late = require('late')
local limits = require('limits')
local lines = require('lines')
local meters = require('meters')
local permits = require('permits')
local records = require('records')
local reserving = require('reserving')
local rows = require('rows')
local step = require('step')
local wakes = require('wakes')
local call, to_bytes = redis.call, struct.pack
local format, sub, max = string.format, string.sub, math.max
local instant, call_many, read_many = commands.instant, commands.call_many, commands.read_many
local SEP, NEVER, MAX_CRASHES, OPEN = constants.SEP, constants.NEVER, constants.MAX_CRASHES, constants.OPEN
local WAITS, ACTIVE, COMPLETED = constants.WAITS, constants.ACTIVE, constants.COMPLETED
local FAILED, CANCELLED = constants.FAILED, constants.CANCELLED
local STATE, ATTEMPTS_MADE, CRASHES = records.STATE, records.ATTEMPTS_MADE, records.CRASHES
local RETURNS, DUE_AT, STARTED_AT = records.RETURNS, records.DUE_AT, records.STARTED_AT
local FINISHED_AT, FENCE, WORKER = records.FINISHED_AT, records.FENCE, records.WORKER
local CANCEL_ASKED, KEYS, QUEUE, KEEP = records.CANCEL_ASKED, records.KEYS, records.QUEUE, records.KEEP
local UNIQUE, GATE, GUARD, TASK = records.UNIQUE, records.GATE, records.GUARD, records.TASK
local GROUP = records.GROUP

local KEY_SIZE = 4 -- fields of each key that a run was charged to

local runs = {}

local END_OF_LEASE = 'the worker that ran it died: its lease ended'

-- How a lease stands among the others: by its end, then in which order they started.
function runs.lease_name(fence, what, id)
  return to_bytes('>I8', fence) .. what .. id
end

function runs.add_lease(at, name)
  step.ends.begun[#step.ends.begun + 1] = instant(at)
  step.ends.begun[#step.ends.begun + 1] = name
end

function runs.end_lease(name)
  step.ends.ended[#step.ends.ended + 1] = name
end

function runs.save_leases()
  call_many('ZREM', step.prefix .. 'leases', step.ends.ended)
  call_many('ZADD', step.prefix .. 'leases', step.ends.begun)
  step.ends.ended, step.ends.begun = {}, {}
end

function runs.save()
  local ends = step.ends
  runs.save_leases()
  call_many('ZREM', step.prefix .. 'done', ends.not_kept)
  call_many('ZADD', step.prefix .. 'done', ends.kept)
  for queue, ids in pairs(ends.unlisted) do
    call_many('ZREM', step.prefix .. 'index' .. SEP .. queue, ids)
  end
  ends.kept, ends.not_kept, ends.unlisted = {}, {}, {}
end

-- A job leaves the list of its queue.
function runs.unlist(queue, id)
  local ids = step.ends.unlisted[queue]
  if not ids then
    ids = {}
    step.ends.unlisted[queue] = ids
  end
  ids[#ids + 1] = id
end

-- When the first live lease ends, unless it is prolonged.
function runs.next_lease_end()
  runs.save_leases()
  local found = call('ZRANGE', step.prefix .. 'leases', 0, 0, 'WITHSCORES')
  return found[2] and tonumber(found[2]) or NEVER
end

-- The lanes under a key that wait for a slot, or for an open start to begin, look again.
function runs.unpark(meter)
  for _, lane in ipairs(lanes.under(meter)) do
    if lanes.unpark(lane) then
      wakes.queue(lane.line.name)
    end
  end
end

-- And so do sleepers that wait for it.
function runs.tell_awaiting(meter)
  if meter.awaited then
    for queue in pairs(meter.awaited) do
      wakes.queue(queue)
    end
    meter.awaited, meter.dirty = nil, true
  end
end

-- The meter of a key that a run was charged to; a limit that was dropped meanwhile, and perhaps declared again, counts
-- nothing of this.
local function meter_of(keys, place)
  local meter = meters.find(keys[place], keys[place + 1] or nil)
  return meter and meter.epoch == keys[place + 2] and meter or nil
end

-- A lease ended: its slots are free, and whoever waits for one is told. Keys: {limit, group, epoch, cost, ...}. A
-- run that went well says when it started: what was refused before that is forgotten.
function runs.free(keys, went_well_from)
  for place = 1, #keys, KEY_SIZE do
    local meter = meter_of(keys, place)
    if meter then
      if went_well_from and meter.refusals > 0 then
        holds.succeeded(meter, went_well_from)
      end
      local was_full = meter.in_flight >= meter.slots
      meter.in_flight, meter.dirty, meter.room = meter.in_flight - 1, true, nil
      if meter.in_flight <= 0 then
        meter.open = 0 -- a client of an earlier release may have written a run without saying that it was open
      end
      if was_full then
        runs.unpark(meter)
      end
      if meter.awaited then
        runs.tell_awaiting(meter)
      end
    end
  end
end

-- Read the keys of these runs in few commands.
local function load_meters(found, number)
  local by_limit = {}
  for each = 1, number do
    local keys = found[each] and found[each][KEYS]
    for place = 1, keys and #keys or 0, KEY_SIZE do
      local groups = by_limit[keys[place]]
      if not groups then
        groups = {}
        by_limit[keys[place]] = groups
      end
      groups[#groups + 1] = keys[place + 1] or ''
    end
  end
  for name, groups in pairs(by_limit) do
    meters.load(name, groups)
  end
end

-- A final state: the unique key is free, those who wait are told, and `keep=0` removes the job.
function runs.end_job(row, final)
  local run, now = row.run, step.now
  local queue, keep = run[QUEUE], run[KEEP]
  local line = lines.get(queue)
  local counts = line.counts
  if run[STATE] == ACTIVE then
    counts[ACTIVE] = counts[ACTIVE] - 1
  end
  run[STATE], run[FINISHED_AT], row.dirty = final, now, true
  counts[final] = counts[final] + 1
  if run[UNIQUE] then
    local key = step.prefix .. 'unique' .. SEP .. queue
    if call('HGET', key, run[UNIQUE]) == row.id then
      call('HDEL', key, run[UNIQUE])
    end
  end
  wakes.finished(row)
  if lines.is_empty(line) then
    -- Workers that run until the queue is empty sleep until somebody else's job ends.
    wakes.emptied(queue)
  end
  if keep == 0 then
    counts[final] = counts[final] - 1
    rows.delete(row)
    runs.unlist(queue, row.id)
  elseif keep then
    step.ends.kept[#step.ends.kept + 1] = instant(now + keep)
    step.ends.kept[#step.ends.kept + 1] = row.id
  end
end

-- A job that no worker failed, but this step itself: whoever asked writes it into its log.
function runs.note_failed(row)
  step.ends.failed[#step.ends.failed + 1] = {
    row.id,
    row.run[QUEUE],
    row.head[TASK],
    row.head[GROUP] or false,
    row.run[ATTEMPTS_MADE],
    rows.more(row).error,
  }
end

local function go_back(row, outcome, due_at)
  local line = lines.get(row.run[QUEUE])
  if outcome ~= 'retry' then
    row.run[ATTEMPTS_MADE] = row.run[ATTEMPTS_MADE] - 1
  end
  if outcome == 'returned' then
    row.run[RETURNS] = row.run[RETURNS] + 1
  end
  if outcome == 'crashed' then
    row.run[CRASHES] = row.run[CRASHES] + 1
    if row.run[CRASHES] >= MAX_CRASHES then
      local more = rows.more(row)
      more.error = 'crashed: it took down its worker '
        .. row.run[CRASHES]
        .. ' times ('
        .. (more.error or 'None')
        .. ')'
      row.more_dirty = true
      runs.end_job(row, FAILED)
      return
    end
  end
  rows.complete(row)
  row.run[DUE_AT] = outcome == 'retry' and max(due_at, step.now) or step.now
  row.run[STATE], row.dirty = WAITS, true
  line.counts[ACTIVE] = line.counts[ACTIVE] - 1
  lines.arrive(line, row)
  wakes.queue(row.run[QUEUE])
end

-- Take an active job out of its run. A job that somebody cancelled ends cancelled, whatever its handler did.
function runs.end_run(row, outcome, due_at, result, failure)
  local run = row.run
  if run[GATE] == OPEN then
    late.abandon(row)
  end
  local keys = run[KEYS]
  run[KEYS], run[GATE], run[GUARD], row.dirty = false, nil, nil, true
  if keys then
    runs.free(keys, outcome == 'completed' and (run[STARTED_AT] or 0) or nil)
  end
  runs.end_lease(runs.lease_name(run[FENCE], 'j', row.id))
  run[WORKER] = false
  if failure then
    rows.more(row).error = failure
    row.more_dirty = true
  end
  if run[CANCEL_ASKED] then
    runs.end_job(row, CANCELLED)
  elseif outcome == 'completed' then
    if result or row.more or not row.no_more then
      local more = rows.more(row)
      more.result, more.error = result, nil
      row.more_dirty = true
    end
    runs.end_job(row, COMPLETED)
  elseif outcome == 'failed' then
    runs.end_job(row, FAILED)
  elseif outcome == 'cancelled' then
    runs.end_job(row, CANCELLED)
  else
    go_back(row, outcome, due_at)
  end
end

-- End leases whose time is over: a dead worker's jobs wait again, its permits are gone. Returns how many.
function runs.take_back(most)
  runs.save_leases()
  if most <= 0 then
    return 0
  end
  local over = call('ZRANGEBYSCORE', step.prefix .. 'leases', '-inf', format('%.0f', step.now), 'LIMIT', 0, most)
  local ids = {}
  for _, name in ipairs(over) do
    if sub(name, 9, 9) == 'j' then
      ids[#ids + 1] = sub(name, 10)
    end
  end
  rows.load(ids)
  for _, name in ipairs(over) do
    local id = sub(name, 10)
    if sub(name, 9, 9) == 'j' then
      local row = step.rows[id]
      runs.end_run(row, 'crashed', nil, nil, END_OF_LEASE)
      if row.run[STATE] == FAILED then
        runs.note_failed(row)
      end
    else
      permits.end_permit(permits.permit(id), false)
    end
  end
  return #over
end

local function due_at(row, finish)
  if finish.at then
    return finish.at
  end
  if finish.when_open then
    -- A slot that is taken opens at no known time: the job is then simply due.
    local latest, keys = step.now, row.run[KEYS] or {}
    for place = 1, #keys, KEY_SIZE do
      local meter = meter_of(keys, place)
      if meter then
        local opens = meters.opens_in_time(meter, keys[place + 3])
        -- And a limit that was lowered below the cost never opens: the next claim says so.
        if opens < NEVER and opens > latest then
          latest = opens
        end
      end
    end
    return latest
  end
  return step.now + finish.after
end

-- End one run in whatever way; false when its lease is lost.
local function end_one(finish, row)
  if not row or row.run[STATE] ~= ACTIVE or row.run[FENCE] ~= finish.fence then
    return false
  end
  if row.run[GATE] == OPEN then
    late.begin(row) -- whoever ends a run has begun it, or would not know
  end
  if finish.holds then
    for _, hold in ipairs(finish.holds) do
      holds.hold_key(hold, row.run[STARTED_AT])
    end
  end
  local due = finish.outcome == 'retry' and due_at(row, finish) or step.now
  runs.end_run(row, finish.outcome, due, finish.result, finish.error)
  return true
end

-- End runs; returns the ids whose lease is lost, for which nothing was changed.
function runs.finish(finishes)
  local ids, lost, ending = {}, {}, {}
  for place, finish in ipairs(finishes) do
    ids[place] = finish.id
    if finish.holds then
      for _, hold in ipairs(finish.holds) do
        limits.check_hold(hold)
      end
    end
  end
  local ran, said = read_many('HMGET', step.prefix .. 'runs', ids), read_many('HMGET', step.prefix .. 'more', ids)
  local nobody_waits = not wakes.somebody_is_told()
  for place = 1, #ids do
    if ran[place] then
      ending[place] = rows.read_run(ran[place])
    end
  end
  load_meters(ending, #ids)
  complete.begin()
  for place = 1, #ids do
    local id, finish, run = ids[place], finishes[place], step.rows[ids[place]] == nil and ending[place]
    if run and nobody_waits and not said[place] and complete.is_plain(finish, run) then
      complete.complete(finish, run)
    else
      local row = run and rows.hold_run(id, run, said[place]) or step.rows[id]
      if not end_one(finish, row) then
        lost[#lost + 1] = id
      end
    end
  end
  return lost
end

-- Delete a job that does not run.
function runs.remove(line, row)
  if row.run[STATE] == WAITS then
    lines.leave(line, row)
    reserving.drop_reservations(row.id)
  else
    line.counts[row.run[STATE]] = line.counts[row.run[STATE]] - 1
    step.ends.not_kept[#step.ends.not_kept + 1] = row.id
  end
  if row.run[UNIQUE] then
    local key = step.prefix .. 'unique' .. SEP .. row.run[QUEUE]
    if call('HGET', key, row.run[UNIQUE]) == row.id then
      call('HDEL', key, row.run[UNIQUE])
    end
  end
  rows.delete(row)
  runs.unlist(row.run[QUEUE], row.id)
  wakes.removed(row.id)
end

return runs
