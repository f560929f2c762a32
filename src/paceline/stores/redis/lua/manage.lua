-- What operators do to single jobs.
local constants = require('constants')
local lines = require('lines')
local records = require('records')
local reserving = require('reserving')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local call, format = redis.call, string.format
local SEP = constants.SEP
local STATE, ATTEMPTS_MADE, CRASHES = records.STATE, records.ATTEMPTS_MADE, records.CRASHES
local RETURNS, DUE_AT, STARTED_AT = records.RETURNS, records.DUE_AT, records.STARTED_AT
local FINISHED_AT, WORKER, CANCEL_ASKED = records.FINISHED_AT, records.WORKER, records.CANCEL_ASKED
local QUEUE, UNIQUE = records.QUEUE, records.UNIQUE

local ALLOWED = {
  cancel = { true, true, true },
  promote = { false, true },
  retry = { false, false, false, true, true, true },
  remove = { true, true, false, true, true, true },
}

local function allows(move, row)
  return ALLOWED[move][rows.seen(row)] or false
end

-- A finished job starts over: what its earlier life left is forgotten, its id and place are kept.
local function reset(row)
  row.run[ATTEMPTS_MADE], row.run[CRASHES], row.run[RETURNS] = 0, 0, 0
  row.run[STARTED_AT], row.run[FINISHED_AT], row.run[CANCEL_ASKED] = false, false, false
  row.run[DUE_AT], row.run[STATE], row.dirty = step.now, 1, true
  local more = rows.more(row)
  more.progress, more.message, more.result, more.error = 0, nil, nil, nil
  row.more_dirty = true
end

-- The other live job that has the unique key of this one.
local function key_holder(row)
  local id = row.run[UNIQUE] and call('HGET', step.prefix .. 'unique' .. SEP .. row.run[QUEUE], row.run[UNIQUE])
  local holder = id and id ~= row.id and rows.find(id)
  return holder and rows.has_key(holder) and holder.id or nil
end

local function move_one(row, move)
  local line = lines.get(row.run[QUEUE])
  if #step.head.reserved > 0 then
    reserving.drop_reservations(row.id)
  end
  if move == 'cancel' then
    if row.run[STATE] == 3 then
      row.run[CANCEL_ASKED], row.dirty = true, true
      wakes.heartbeat(row.run[WORKER])
    else
      lines.leave(line, row)
      runs.end_job(row, 6)
    end
  elseif move == 'promote' then
    lines.leave(line, row)
    row.run[DUE_AT], row.dirty = step.now, true
    lines.arrive(line, row)
  elseif move == 'retry' then
    line.counts[row.run[STATE]] = line.counts[row.run[STATE]] - 1
    step.ends.not_kept[#step.ends.not_kept + 1] = row.id
    reset(row)
    if row.run[UNIQUE] then
      call('HSET', step.prefix .. 'unique' .. SEP .. row.run[QUEUE], row.run[UNIQUE], row.id)
    end
    lines.arrive(line, row)
  else
    runs.remove(line, row)
  end
  wakes.queue(row.run[QUEUE])
end

-- A stretch of a queue's jobs in the order they were added or backwards, and where the next one begins.
local function stretch(queue, from, most, backwards)
  local order, first, last_of_all = 'ZRANGEBYSCORE', format('(%.0f', from), '+inf'
  if backwards then
    order, first, last_of_all = 'ZREVRANGEBYSCORE', from == 0 and '+inf' or first, '-inf'
  end
  local found = call(order, step.prefix .. 'index' .. SEP .. queue, first, last_of_all, 'WITHSCORES', 'LIMIT', 0, most)
  local ids, last = {}, nil
  for place = 1, #found, 2 do
    ids[#ids + 1] = found[place]
    last = tonumber(found[place + 1])
  end
  rows.load(ids)
  return ids, #ids == most and last or false
end

return {
  allows = allows,
  key_holder = key_holder,
  move_one = move_one,
  stretch = stretch,
}
