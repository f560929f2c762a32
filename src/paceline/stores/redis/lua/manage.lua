-- What operators do to single jobs.
local constants = require('constants')
local lines = require('lines')
local reserving = require('reserving')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local call, format = redis.call, string.format
local SEP = constants.SEP

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
  row.attempts_made, row.crashes, row.returns = 0, 0, 0
  row.started_at, row.finished_at, row.cancel_asked = nil, nil, nil
  row.due_at, row.state, row.dirty = step.now, 1, true
  local more = rows.more(row)
  more.progress, more.message, more.result, more.error = 0, nil, nil, nil
  row.more_dirty = true
end

-- The other live job that has the unique key of this one.
local function key_holder(row)
  local id = row.unique and call('HGET', step.prefix .. 'unique' .. SEP .. row.queue, row.unique)
  local holder = id and id ~= row.id and rows.find(id)
  return holder and rows.has_key(holder) and holder.id or nil
end

local function move_one(row, move)
  local line = lines.get(row.queue)
  if #step.head.reserved > 0 then
    reserving.drop_reservations(row.id)
  end
  if move == 'cancel' then
    if row.state == 3 then
      row.cancel_asked, row.dirty = true, true
      wakes.heartbeat(row.worker)
    else
      lines.leave(line, row)
      runs.end_job(row, 6)
    end
  elseif move == 'promote' then
    lines.leave(line, row)
    row.due_at, row.dirty = step.now, true
    lines.arrive(line, row)
  elseif move == 'retry' then
    line.counts[row.state] = line.counts[row.state] - 1
    step.ends.not_kept[#step.ends.not_kept + 1] = row.id
    reset(row)
    if row.unique then
      call('HSET', step.prefix .. 'unique' .. SEP .. row.queue, row.unique, row.id)
    end
    lines.arrive(line, row)
  else
    runs.remove(line, row)
  end
  wakes.queue(row.queue)
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
