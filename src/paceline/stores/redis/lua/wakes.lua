-- Who sleeps, and how they are woken: each sleeping process blocks on a list of its own; a word in it wakes that one.
-- A waker is such a process (one of its event loops). Its words are hints: without them everything is still correct.
local STALE = 90000000 -- a waker that lives says so again before this time is over
resets[#resets + 1] = function()
  wakes.queues, wakes.empty, wakes.words = empty(wakes.queues), empty(wakes.empty), empty(wakes.words)
  wakes.everybody, wakes.somebody_waits = false, nil
end

local function real_now()
  if not args.now then
    return now
  end
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- A job arrived, or something else changed, in one queue; without a name: for those who wait for a permit somewhere.
function wakes.queue(name)
  if name == '' then
    wakes.everybody = true
  end
  wakes.queues[name] = true
end

-- A limit opened or changed: it may cover any queue.
function wakes.all()
  wakes.everybody = true
end

-- The last unfinished job of a queue ended.
function wakes.emptied(name)
  wakes.empty[name] = true
end

local function tell(waker, word)
  local words = wakes.words[waker]
  if not words then
    words = {}
    wakes.words[waker] = words
  end
  words[#words + 1] = type(word) == 'table' and pack(word) or word
end

-- A lease of this worker needs a look.
function wakes.heartbeat(worker)
  local waker = worker and call('HGET', prefix .. 'ears', worker)
  if waker then
    tell(waker, { 'heartbeat', worker })
  end
end

local function somebody_waits()
  if wakes.somebody_waits == nil then
    wakes.somebody_waits = call('EXISTS', prefix .. 'waiters') == 1
  end
  return wakes.somebody_waits
end

local function waiters_of(id)
  local names = call('HGET', prefix .. 'waiters', id)
  if names then
    call('HDEL', prefix .. 'waiters', id)
  end
  return each_match(names or '', '[^' .. SEP .. ']+')
end

-- Tell those who wait for this job; its record goes along, because it may be gone when they look.
function wakes.finished(row)
  if not somebody_waits() then
    return
  end
  for waker in waiters_of(row.id) do
    local record = {}
    rows.give(row, record)
    local lengths = to_bytes('>I4I4I4I4', #record[1], #record[2], #record[3], #record[4])
    tell(waker, 'f' .. lengths .. concat(record))
  end
end

-- A job is gone before it finished.
function wakes.removed(id)
  if not somebody_waits() then
    return
  end
  for waker in waiters_of(id) do
    tell(waker, { 'removed', id })
  end
end

-- `waker` wants to hear of the end of a job.
function wakes.wait_for(id, waker)
  local names = call('HGET', prefix .. 'waiters', id) or ''
  if not find_text(SEP .. names .. SEP, SEP .. waker .. SEP, 1, true) then
    call('HSET', prefix .. 'waiters', id, names == '' and waker or names .. SEP .. waker)
  end
end

-- From now on `waker` sleeps for these queues ('' for those who wait for permits).
function wakes.sleep(waker, queues, wants_empty)
  local at = format('%.0f', real_now())
  call('ZADD', prefix .. 'asleep', at, waker)
  for _, queue in ipairs(queues) do
    call('ZADD', prefix .. 'sleep' .. SEP .. queue, at, waker)
  end
  for _, queue in ipairs(wants_empty or {}) do
    call('ZADD', prefix .. 'empty' .. SEP .. queue, at, waker)
  end
end

function wakes.get_up(waker, queues)
  for _, queue in ipairs(queues) do
    call('ZREM', prefix .. 'sleep' .. SEP .. queue, waker)
  end
end

-- The first sleepers of a list that still live, at most so many; they are taken off it, and so are the dead.
local function pop(key, most)
  local living, oldest = {}, nil
  while #living < most do
    local found, off = call('ZRANGE', key, 0, most == 1 and 9 or -1, 'WITHSCORES'), {}
    for place = 1, #found, 2 do
      oldest = oldest or real_now() - STALE
      if tonumber(found[place + 1]) < oldest then
        off[#off + 1] = found[place]
      elseif #living < most then
        living[#living + 1] = found[place]
        off[#off + 1] = found[place]
      end
    end
    if #off == 0 then
      break
    end
    call_many('ZREM', key, off)
  end
  return living
end

-- Sleepers that did not say for long that they live.
function wakes.forget_stale(all_lines)
  local oldest = format('(%.0f', real_now() - STALE)
  call('ZREMRANGEBYSCORE', prefix .. 'asleep', '-inf', oldest)
  call('ZREMRANGEBYSCORE', prefix .. 'sleep' .. SEP, '-inf', oldest)
  for _, line in ipairs(all_lines) do
    call('ZREMRANGEBYSCORE', prefix .. 'sleep' .. SEP .. line.name, '-inf', oldest)
    call('ZREMRANGEBYSCORE', prefix .. 'empty' .. SEP .. line.name, '-inf', oldest)
  end
end

-- One sleeper is woken for a queue: if it leaves work undone, its claim wakes the next one.
local function wake_one(queue)
  local line = lines.held[queue]
  local sets = 0
  for _ in pairs(line and line.tasksets or {}) do
    sets = sets + 1
  end
  -- Where workers know different tasks, the first sleeper may be the wrong one.
  local most = sets > 1 and NEVER or 1
  for _, waker in ipairs(pop(prefix .. 'sleep' .. SEP .. queue, most)) do
    tell(waker, { 'queue', queue })
  end
end

function wakes.send()
  if wakes.everybody then
    for _, waker in ipairs(pop(prefix .. 'asleep', NEVER)) do
      tell(waker, { 'all' })
    end
  else
    for queue in pairs(wakes.queues) do
      wake_one(queue)
    end
  end
  for queue in pairs(wakes.empty) do
    for _, waker in ipairs(pop(prefix .. 'empty' .. SEP .. queue, NEVER)) do
      tell(waker, { 'empty', queue })
    end
  end
  for waker, words in pairs(wakes.words) do
    local key = prefix .. 'wake' .. SEP .. waker
    call_many('RPUSH', key, words)
    call('EXPIRE', key, 60)
  end
  wakes.queues, wakes.empty, wakes.words = empty(wakes.queues), empty(wakes.empty), empty(wakes.words)
  wakes.everybody = false
end

savers[#savers + 1] = wakes.send
