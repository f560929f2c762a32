-- The ends of runs: free the slots, and decide where the job goes.
local commands = require('commands')
local constants = require('constants')
local lanes = require('lanes')
local late = require('late')
local limits = require('limits')
local lines = require('lines')
local meters = require('meters')
local permits = require('permits')
local reserving = require('reserving')
local rows = require('rows')
local step = require('step')
local wakes = require('wakes')
local call, pack, unpack_one, to_bytes = redis.call, cmsgpack.pack, cmsgpack.unpack, struct.pack
local format, sub, max = string.format, string.sub, math.max
local instant, call_many, read_many = commands.instant, commands.call_many, commands.read_many
local SEP, NEVER, MAX_CRASHES = constants.SEP, constants.NEVER, constants.MAX_CRASHES

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
  runs.save_leases()
  call_many('ZREM', step.prefix .. 'done', step.ends.not_kept)
  call_many('ZADD', step.prefix .. 'done', step.ends.kept)
  step.ends.kept, step.ends.not_kept = {}, {}
  for queue, ids in pairs(step.ends.unlisted) do
    call_many('ZREM', step.prefix .. 'index' .. SEP .. queue, ids)
  end
  if #step.ends.gone > 0 then
    call_many('HDEL', step.prefix .. 'jobs', step.ends.gone)
    call_many('HDEL', step.prefix .. 'runs', step.ends.gone)
  end
  call_many('HSET', step.prefix .. 'runs', step.ends.written)
  call_many('HSET', step.prefix .. 'more', step.ends.results)
  step.ends.gone, step.ends.unlisted = {}, {}
  step.ends.written, step.ends.results = {}, {}
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
  for queue in pairs(meter.awaited) do
    wakes.queue(queue)
  end
  if next(meter.awaited) then
    meter.awaited, meter.dirty = {}, true
  end
end

-- A lease ended: its slots are free, and whoever waits for one is told. Keys: {limit, group, epoch, cost, ...}.
function runs.free(keys)
  for place = 1, #keys, 4 do
    local meter = meters.find(keys[place], keys[place + 1] or nil)
    -- A limit that was dropped meanwhile, and perhaps declared again, counts nothing of this.
    if meter and meter.epoch == keys[place + 2] then
      local was_full = meter.in_flight >= meter.slots
      meter.in_flight = meter.in_flight - 1
      meter.dirty = true
      if meter.in_flight <= 0 then
        meter.open = 0 -- a client of an earlier release may have written a run without saying that it was open
      end
      if was_full then
        runs.unpark(meter)
      end
      runs.tell_awaiting(meter)
    end
  end
end

function runs.succeeded(keys, started_at)
  for place = 1, #keys, 4 do
    local meter = meters.find(keys[place], keys[place + 1] or nil)
    if meter and meter.epoch == keys[place + 2] then
      meters.succeeded(meter, started_at)
    end
  end
end

-- A final state: the unique key is free, those who wait are told, and `keep=0` removes the job.
function runs.end_job(row, final)
  local line = lines.get(row.queue)
  if row.state == 3 then
    line.counts[3] = line.counts[3] - 1
  end
  row.state, row.finished_at, row.dirty = final, step.now, true
  line.counts[final] = line.counts[final] + 1
  if row.unique then
    local key = step.prefix .. 'unique' .. SEP .. row.queue
    if call('HGET', key, row.unique) == row.id then
      call('HDEL', key, row.unique)
    end
  end
  wakes.finished(row)
  if lines.is_empty(line) then
    -- Workers that run until the queue is empty sleep until somebody else's job ends.
    wakes.emptied(row.queue)
  end
  if row.keep == 0 then
    line.counts[final] = line.counts[final] - 1
    rows.delete(row)
    runs.unlist(row.queue, row.id)
  elseif row.keep then
    step.ends.kept[#step.ends.kept + 1] = instant(step.now + row.keep)
    step.ends.kept[#step.ends.kept + 1] = row.id
  end
end

-- A job that no worker failed, but this step itself: whoever asked writes it into its log.
function runs.note_failed(row)
  step.ends.failed[#step.ends.failed + 1] = {
    row.id,
    row.queue,
    row.task,
    row.group or false,
    row.attempts_made,
    rows.more(row).error,
  }
end

local function go_back(row, outcome, due_at)
  local line = lines.get(row.queue)
  if outcome ~= 'retry' then
    row.attempts_made = row.attempts_made - 1
  end
  if outcome == 'returned' then
    row.returns = row.returns + 1
  end
  if outcome == 'crashed' then
    row.crashes = row.crashes + 1
    if row.crashes >= MAX_CRASHES then
      local more = rows.more(row)
      more.error = 'crashed: it took down its worker ' .. row.crashes .. ' times (' .. (more.error or 'None') .. ')'
      row.more_dirty = true
      runs.end_job(row, 5)
      return
    end
  end
  rows.complete(row)
  row.due_at = outcome == 'retry' and max(due_at, step.now) or step.now
  row.state, row.dirty = 1, true
  line.counts[3] = line.counts[3] - 1
  lines.arrive(line, row)
  wakes.queue(row.queue)
end

-- Take an active job out of its run. A job that somebody cancelled ends cancelled, whatever its handler did.
function runs.end_run(row, outcome, due_at, result, failure)
  late.abandon(row)
  local keys = row.keys or {}
  row.keys, row.dirty = nil, true
  row.gate, row.guard = 0, NEVER
  if outcome == 'completed' then
    runs.succeeded(keys, row.started_at or 0)
  end
  runs.free(keys)
  runs.end_lease(runs.lease_name(row.fence, 'j', row.id))
  row.worker = nil
  if failure then
    rows.more(row).error = failure
    row.more_dirty = true
  end
  if row.cancel_asked then
    runs.end_job(row, 6)
  elseif outcome == 'completed' then
    if result or row.more or not row.no_more then
      local more = rows.more(row)
      more.result, more.error = result, nil
      row.more_dirty = true
    end
    runs.end_job(row, 4)
  elseif outcome == 'failed' then
    runs.end_job(row, 5)
  elseif outcome == 'cancelled' then
    runs.end_job(row, 6)
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
      if row.state == 5 then
        runs.note_failed(row)
      end
    else
      permits.end_permit(permits.permit(id), false)
    end
  end
  return #over
end

-- holds

-- Hold one key; without a time the limit's own backoff decides.
function runs.hold_key(hold, started_at)
  if hold.create and not limits.find(hold.limit) then
    limits.declare({ hold.create })
    lines.reclassify_all()
  end
  local limit = limits.require(hold.limit)
  local held
  if limit.by == 'group' and not hold.group then
    held = meters.of(hold.limit)
    limits.hold_all(limit, hold.till or step.now + (hold.length or 0), hold.reason)
  else
    held = { limits.require_key(hold.limit, hold.group) }
  end
  for _, meter in ipairs(held) do
    if hold.till then
      meters.hold(meter, hold.till, hold.reason)
    elseif hold.length then
      meters.hold(meter, step.now + hold.length, hold.reason)
    else
      meters.refuse(meter, limit.backoff or hold.backoff, hold.jitter, hold.reason, started_at)
    end
  end
end

local function due_at(row, finish)
  if finish.at then
    return finish.at
  end
  if finish.when_open then
    -- A slot that is taken opens at no known time: the job is then simply due.
    local latest, keys = step.now, row.keys or {}
    for place = 1, #keys, 4 do
      local meter = meters.find(keys[place], keys[place + 1] or nil)
      if meter and meter.epoch == keys[place + 2] then
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

-- Most runs simply complete: nobody waits for the job, it has no unique key and said nothing. Then its run is
-- changed as
-- it stands in the store ({state, attempts, crashes, returns, due, started, finished, fence, worker, cancel, lease,
-- keys,
-- queue, keep, unique, gate, guard}), without making a job of it. True when that was done; `runs.end_run` does the same
-- in general.
local function complete_plainly(finish, run)
  local id, keys, queue, keep = finish.id, run[12], run[13], run[14]
  if run[1] ~= 3 or run[8] ~= finish.fence or run[10] or run[15] or run[16] == 1 then
    return false
  end
  if keys then
    runs.succeeded(keys, run[6] or 0)
    runs.free(keys)
  end
  runs.end_lease(runs.lease_name(run[8], 'j', id))
  step.rows[id] = false
  local line = lines.get(queue)
  local counts = line.counts
  counts[3] = counts[3] - 1
  if lines.is_empty(line) then
    wakes.emptied(queue)
  end
  if keep == 0 then
    step.ends.gone[#step.ends.gone + 1] = id
    runs.unlist(queue, id)
    return true
  end
  counts[4] = counts[4] + 1
  run[1], run[7], run[9], run[12], run[16], run[17] = 4, step.now, false, false, nil, nil
  local size = #step.ends.written
  step.ends.written[size + 1], step.ends.written[size + 2] = id, pack(run)
  if finish.result then
    size = #step.ends.results
    step.ends.results[size + 1], step.ends.results[size + 2] = id, pack({ 0, false, finish.result, false, {} })
  end
  if keep then
    size = #step.ends.kept
    step.ends.kept[size + 1], step.ends.kept[size + 2] = instant(step.now + keep), id
  end
  return true
end

-- End one run in whatever way; false when its lease is lost.
local function end_one(finish, row)
  if not row or row.state ~= 3 or row.fence ~= finish.fence then
    return false
  end
  if row.gate == 1 then
    late.begin(row) -- whoever ends a run has begun it, or would not know
  end
  for _, hold in ipairs(finish.holds or {}) do
    runs.hold_key(hold, row.started_at)
  end
  local due = finish.outcome == 'retry' and due_at(row, finish) or step.now
  runs.end_run(row, finish.outcome, due, finish.result, finish.error)
  return true
end

-- End runs; returns the ids whose lease is lost, for which nothing was changed.
function runs.finish(finishes)
  local ids, lost = {}, {}
  for place, finish in ipairs(finishes) do
    ids[place] = finish.id
    if finish.holds then
      for _, hold in ipairs(finish.holds) do
        limits.check_hold(hold)
      end
    end
  end
  local found, said = read_many('HMGET', step.prefix .. 'runs', ids), read_many('HMGET', step.prefix .. 'more', ids)
  local nobody_waits = not wakes.somebody_is_told()
  for place, finish in ipairs(finishes) do
    local id, run, done = finish.id, found[place], false
    if step.rows[id] == nil and run then
      if nobody_waits and not said[place] and not finish.holds and finish.outcome == 'completed' then
        done = complete_plainly(finish, unpack_one(run))
      end
      if not done then
        rows.hold_run(id, run, said[place])
      end
    end
    if not done and not end_one(finish, step.rows[id]) then
      lost[#lost + 1] = id
    end
  end
  return lost
end

-- Delete a job that does not run.
function runs.remove(line, row)
  if row.state == 1 then
    lines.leave(line, row)
    reserving.drop_reservations(row.id)
  else
    line.counts[row.state] = line.counts[row.state] - 1
    step.ends.not_kept[#step.ends.not_kept + 1] = row.id
  end
  if row.unique then
    local key = step.prefix .. 'unique' .. SEP .. row.queue
    if call('HGET', key, row.unique) == row.id then
      call('HDEL', key, row.unique)
    end
  end
  rows.delete(row)
  runs.unlist(row.queue, row.id)
  wakes.removed(row.id)
end

return runs
