-- The short way of an end: most runs simply complete. Nobody waits for the job, nothing was said of it, it has no
-- unique key and its start is not open: then its run is changed as it stands in the store. Without it a drain of jobs
-- that are kept takes the server a tenth longer. `runs.end_run` does the same in general.
local commands = require('commands')
local constants = require('constants')
local lines = require('lines')
local records = require('records')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local pack = cmsgpack.pack
local instant, call_many = commands.instant, commands.call_many
local ACTIVE, COMPLETED, OPEN = constants.ACTIVE, constants.COMPLETED, constants.OPEN
local STATE, STARTED_AT, FINISHED_AT = records.STATE, records.STARTED_AT, records.FINISHED_AT
local FENCE, WORKER, CANCEL_ASKED, KEYS = records.FENCE, records.WORKER, records.CANCEL_ASKED, records.KEYS
local QUEUE, KEEP, UNIQUE, GATE, GUARD = records.QUEUE, records.KEEP, records.UNIQUE, records.GATE, records.GUARD

local complete = {}

-- Whether this run, whose job has nothing but a body and a run, may go the short way.
function complete.is_plain(finish, run)
  if finish.outcome ~= 'completed' or finish.holds or run[STATE] ~= ACTIVE or run[FENCE] ~= finish.fence then
    return false
  end
  return not run[CANCEL_ASKED] and not run[UNIQUE] and run[GATE] ~= OPEN
end

-- End it.
function complete.complete(finish, run)
  local id, queue, keep, plain = finish.id, run[QUEUE], run[KEEP], step.plain_ends
  if run[KEYS] then
    runs.free(run[KEYS], run[STARTED_AT] or 0)
  end
  runs.end_lease(runs.lease_name(run[FENCE], 'j', id))
  step.rows[id] = false
  local line = lines.get(queue)
  local counts = line.counts
  counts[ACTIVE] = counts[ACTIVE] - 1
  if lines.is_empty(line) then
    wakes.emptied(queue)
  end
  if keep == 0 then
    plain.gone[#plain.gone + 1] = id
    runs.unlist(queue, id)
    return
  end
  counts[COMPLETED] = counts[COMPLETED] + 1
  run[STATE], run[FINISHED_AT], run[WORKER], run[KEYS] = COMPLETED, step.now, false, false
  run[GATE], run[GUARD] = nil, nil
  local size = #plain.written
  plain.written[size + 1], plain.written[size + 2] = id, pack(run)
  if finish.result then
    size = #plain.results
    plain.results[size + 1], plain.results[size + 2] =
      id, records.encode_more({ progress = 0, result = finish.result, logs = {} })
  end
  if keep then
    local kept = step.ends.kept
    size = #kept
    kept[size + 1], kept[size + 2] = instant(step.now + keep), id
  end
end

function complete.begin()
  step.plain_ends = { gone = {}, written = {}, results = {} }
end

-- Write what ended so.
function complete.save()
  local plain = step.plain_ends
  if plain then
    call_many('HDEL', step.prefix .. 'jobs', plain.gone)
    call_many('HDEL', step.prefix .. 'runs', plain.gone)
    call_many('HSET', step.prefix .. 'runs', plain.written)
    call_many('HSET', step.prefix .. 'more', plain.results)
    step.plain_ends = nil
  end
end

return complete
