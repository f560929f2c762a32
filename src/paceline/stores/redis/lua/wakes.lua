-- Who sleeps, and how they are woken: each sleeping process blocks on a list of its own; a word in it wakes that one.
-- A waker is such a process (one of its event loops). Its words are hints: without them everything is still correct.
local commands = require('commands')
local constants = require('constants')
local rows = require('rows')
local step = require('step')
local call, pack, to_bytes, format = redis.call, cmsgpack.pack, struct.pack, string.format
local concat, find_text, each_match = table.concat, string.find, string.gmatch
local call_many = commands.call_many
local SEP, NEVER = constants.SEP, constants.NEVER

local wakes = {}
local STALE = 1800000000 -- a waker that lives says so again before this time is over
local OVERDUE = 300000 -- who was woken and did not claim by then is dead or busy: another one is woken

local function real_now()
  if not step.args.now then
    return step.now
  end
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- A job arrived, or something else changed, in one queue; without a name: for those who wait for a permit somewhere.
function wakes.queue(name)
  if name == '' then
    step.wakes.everybody = true
  end
  step.wakes.queues[name] = step.wakes.queues[name] or 1
end

-- Sleepers of a queue wait for a slot under this key.
function wakes.await(meter, queue)
  meter.awaited = meter.awaited or {}
  if not meter.awaited[queue] then
    meter.awaited[queue], meter.dirty = true, true
  end
end

-- A limit opened or changed: it may cover any queue.
function wakes.all()
  step.wakes.everybody = true
end

-- The last unfinished job of a queue ended.
function wakes.emptied(name)
  step.wakes.empty[name] = true
end

local function tell(waker, word)
  local words = step.wakes.words[waker]
  if not words then
    words = {}
    step.wakes.words[waker] = words
  end
  words[#words + 1] = type(word) == 'table' and pack(word) or word
end

-- A lease of this worker needs a look.
function wakes.heartbeat(worker)
  local waker = worker and call('HGET', step.prefix .. 'ears', worker)
  if waker then
    tell(waker, { 'heartbeat', worker })
  end
end

function wakes.somebody_is_told()
  if step.wakes.somebody_waits == nil then
    step.wakes.somebody_waits = call('EXISTS', step.prefix .. 'waiters') == 1
  end
  return step.wakes.somebody_waits
end

local function waiters_of(id)
  local names = call('HGET', step.prefix .. 'waiters', id)
  if names then
    call('HDEL', step.prefix .. 'waiters', id)
  end
  return each_match(names or '', '[^' .. SEP .. ']+')
end

-- Tell those who wait for this job; its record goes along, because it may be gone when they look.
function wakes.finished(row)
  if not wakes.somebody_is_told() then
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
  if not wakes.somebody_is_told() then
    return
  end
  for waker in waiters_of(id) do
    tell(waker, { 'removed', id })
  end
end

-- `waker` wants to hear of the end of a job.
function wakes.wait_for(id, waker)
  local names = call('HGET', step.prefix .. 'waiters', id) or ''
  if not find_text(SEP .. names .. SEP, SEP .. waker .. SEP, 1, true) then
    call('HSET', step.prefix .. 'waiters', id, names == '' and waker or names .. SEP .. waker)
  end
end

-- From now on `waker` sleeps for these queues ('' for those who wait for permits).
function wakes.sleep(waker, queues, wants_empty)
  local at = format('%.0f', real_now())
  call('ZADD', step.prefix .. 'asleep', at, waker)
  for _, queue in ipairs(queues) do
    call('ZADD', step.prefix .. 'sleep' .. SEP .. queue, at, waker)
  end
  for _, queue in ipairs(wants_empty or {}) do
    call('ZADD', step.prefix .. 'empty' .. SEP .. queue, at, waker)
  end
end

-- Those who went to sleep in a life whose data is gone are on no list: one of them is told, and tells the next.
function wakes.tell_of_its_end(born)
  if born and born ~= step.head.born then
    local key = step.prefix .. 'ended' .. SEP .. format('%.0f', born)
    if call('EXISTS', key) == 0 then
      call('RPUSH', key, '')
      call('EXPIRE', key, 60)
    end
  end
end

function wakes.get_up(waker, queues)
  for _, queue in ipairs(queues) do
    call('ZREM', step.prefix .. 'sleep' .. SEP .. queue, waker)
  end
end

local function lives(waker, since)
  local oldest = real_now() - STALE
  return tonumber(since) >= oldest or tonumber(call('ZSCORE', step.prefix .. 'asleep', waker) or 0) >= oldest
end

-- Those who went to sleep last and still live, at most so many, and one more who may watch over them. They are taken
-- off the list, and so are the dead. The last one is the least likely to have died since.
local function pop(key, most)
  local living, spare, off, from = {}, nil, {}, 0
  while not spare do
    local stride = most < NEVER and most + 9 or NEVER
    local found = call('ZREVRANGE', key, from, most < NEVER and from + stride - 1 or -1, 'WITHSCORES')
    for place = 1, #found, 2 do
      if not lives(found[place], found[place + 1]) then
        off[#off + 1] = found[place]
      elseif #living < most then
        living[#living + 1] = found[place]
        off[#off + 1] = found[place]
      else
        spare = found[place]
        break
      end
    end
    if #found < 2 * stride then
      break
    end
    from = from + stride
  end
  call_many('ZREM', key, off)
  return living, spare
end

local function forget_dead(key)
  local found, off = call('ZRANGEBYSCORE', key, '-inf', format('(%.0f', real_now() - STALE), 'WITHSCORES'), {}
  for place = 1, #found, 2 do
    if not lives(found[place], found[place + 1]) then
      off[#off + 1] = found[place]
    end
  end
  call_many('ZREM', key, off)
end

-- Sleepers that did not say for long that they live.
function wakes.forget_stale(all_lines)
  forget_dead(step.prefix .. 'sleep' .. SEP)
  for _, line in ipairs(all_lines) do
    forget_dead(step.prefix .. 'sleep' .. SEP .. line.name)
    forget_dead(step.prefix .. 'empty' .. SEP .. line.name)
  end
  forget_dead(step.prefix .. 'asleep')
end

-- A waker that was woken has come; `gone`: it is there no more, and another one has to.
function wakes.came(waker, gone)
  local said = step.head.woken and step.head.woken[waker]
  if said then
    step.head.woken[waker] = nil
    if next(step.head.woken) == nil then
      step.head.woken = nil
    end
    if gone then
      wakes.queue(said[2])
    end
  end
end

-- Who was woken and did not come in time is given up, and twice as many others are woken in its place.
local function give_up_overdue()
  local oldest = real_now() - OVERDUE
  for waker, said in pairs(step.head.woken) do
    if said[1] <= oldest then
      step.head.woken[waker] = nil
      step.wakes.queues[said[2]] = (step.wakes.queues[said[2]] or 0) + 2
    end
  end
  if next(step.head.woken) == nil then
    step.head.woken = nil
  end
end

-- Look after those who were woken; true while there is somebody to wait for.
function wakes.watch()
  if step.head.woken then
    give_up_overdue()
  end
  local on = step.head.woken ~= nil or next(step.wakes.queues) ~= nil
  step.head.watched_until = on and real_now() + 2 * OVERDUE or nil
  return on
end

-- One sleeper is woken for a queue: if it leaves work undone, its claim wakes the next one. It may be dead, or die
-- before its claim: another sleeper is told to look after it, unless one does so already.
local function wake_some(queue, number)
  local line = step.lines[queue]
  local sets = 0
  for _ in pairs(line and line.tasksets or {}) do
    sets = sets + 1
  end
  -- Where workers know different tasks, the first sleeper may be the wrong one.
  local woken, spare = pop(step.prefix .. 'sleep' .. SEP .. queue, sets > 1 and NEVER or number)
  for _, waker in ipairs(woken) do
    tell(waker, { 'queue', queue })
    if spare then
      step.head.woken = step.head.woken or {}
      step.head.woken[waker] = { real_now(), queue }
    end
  end
  if spare and (step.head.watched_until or 0) <= real_now() then
    -- Those who went to sleep together may have died together: so the one who sleeps longest looks too, a little later.
    local longest = call('ZRANGE', step.prefix .. 'sleep' .. SEP .. queue, 0, 0)[1]
    tell(spare, { 'watch', 1 })
    if longest ~= spare then
      tell(longest, { 'watch', 2 })
    end
    step.head.watched_until = real_now() + 2 * OVERDUE
  end
end

function wakes.send()
  if step.head.woken then
    give_up_overdue()
  end
  if step.wakes.everybody then
    for _, waker in ipairs(pop(step.prefix .. 'asleep', NEVER)) do
      tell(waker, { 'all' })
    end
  else
    for queue, number in pairs(step.wakes.queues) do
      wake_some(queue, number)
    end
  end
  for queue in pairs(step.wakes.empty) do
    for _, waker in ipairs(pop(step.prefix .. 'empty' .. SEP .. queue, NEVER)) do
      tell(waker, { 'empty', queue })
    end
  end
  for waker, words in pairs(step.wakes.words) do
    local key = step.prefix .. 'wake' .. SEP .. waker
    call_many('RPUSH', key, words)
    call('EXPIRE', key, 60)
  end
  step.wakes.queues, step.wakes.empty, step.wakes.words = {}, {}, {}
  step.wakes.everybody = false
end

return wakes
