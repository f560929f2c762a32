-- A job: its body, which never changes, and its run, which a start makes and every step after it changes.
-- The body is order, created_at, due_at, the length of its head, the head (a record) and the data, which no step reads.
local commands = require('commands')
local constants = require('constants')
local lanes = require('lanes')
local records = require('records')
local step = require('step')
local call, pack, unpack_one, unpack_from = redis.call, cmsgpack.pack, cmsgpack.unpack, cmsgpack.unpack_one
local to_bytes, from_bytes = struct.pack, struct.unpack
local call_many, read_many = commands.call_many, commands.read_many
local WAITS, DELAYED, COMPLETED = constants.WAITS, constants.DELAYED, constants.COMPLETED
local STATE, DUE_AT, UNIQUE_TTL = records.STATE, records.DUE_AT, records.UNIQUE_TTL
local BODY_QUEUE, BODY_KEEP, BODY_UNIQUE = records.BODY_QUEUE, records.BODY_KEEP, records.BODY_UNIQUE
local GATE, ON_TIME = records.GATE, constants.ON_TIME
local refuse = step.refuse
local HEAD_AT = 28 -- where the head of a stored body begins, counted from 0
local NEW_HEAD_AT = 4 -- the same in a body that is to be stored
local DUE_IN_BODY = 17 -- where due_at stands in it, counted from 1

local rows = {}

-- A job is its id, its run (a list; WAITS where it never ran), and as far as it was read the head of its body.
local function new_row(id, run)
  return { id = id, run = run, head = false, body = false }
end

local function new_run(due_at, head)
  local queue, keep, unique = head[BODY_QUEUE], head[BODY_KEEP], head[BODY_UNIQUE]
  return { WAITS, 0, 0, 0, due_at, false, false, 0, false, false, 0, false, queue, keep or false, unique or false }
end

function rows.read_run(text)
  local run = unpack_one(text)
  if run[GATE] == ON_TIME then
    run[GATE] = false
  end
  return run
end

local function set_more(row, blob)
  if blob then
    row.more = records.decode_more(blob)
    row.has_more = true
  else
    row.more = { progress = 0, logs = {} }
  end
end

-- A job that runs, without its body, from what the store has of it.
function rows.hold_run(id, run, more)
  local row = new_row(id, run)
  row.has_run = true
  if more then
    set_more(row, more)
  else
    row.no_more = true
  end
  step.rows[id] = row
  return row
end

local function set_body(row, body)
  local _, head = unpack_from(body, HEAD_AT)
  row.body, row.head = body, head
end

-- The whole of a job that was read without its body.
function rows.complete(row)
  if not row.body then
    set_body(row, call('HGET', step.prefix .. 'jobs', row.id))
  end
  return row
end

-- Its number, negative for LIFO, and when it was added.
function rows.order_and_created(row)
  if not row.order then
    row.order, row.created_at = from_bytes('>dd', row.body)
  end
  return row.order, row.created_at
end

-- Jobs by their ids, in one go; those that do not exist are left out of the cache as `false`.
function rows.load(ids)
  local held, missing = step.rows, {}
  for place = 1, #ids do
    local id = ids[place]
    local row = held[id]
    if row == nil then
      missing[#missing + 1] = id
      held[id] = false
    elseif row then
      rows.complete(row)
    end
  end
  if #missing == 0 then
    return
  end
  local bodies = read_many('HMGET', step.prefix .. 'jobs', missing)
  local has_any = false
  for place = 1, #missing do
    has_any = has_any or bodies[place]
  end
  local ran = has_any and read_many('HMGET', step.prefix .. 'runs', missing)
  for place = 1, has_any and #missing or 0 do
    local id, body = missing[place], bodies[place]
    if body then
      local row = new_row(id, ran[place] and rows.read_run(ran[place]))
      set_body(row, body)
      if ran[place] then
        row.has_run = true
      else
        row.run = new_run(from_bytes('>d', body, DUE_IN_BODY), row.head)
        row.no_more = true -- nobody said anything of a job that never ran
      end
      held[id] = row
    end
  end
end

-- True while a live job keeps its unique key from others.
function rows.has_key(row)
  local ttl, _, created_at = row.head[UNIQUE_TTL], rows.order_and_created(row)
  return not ttl or step.now < created_at + ttl
end

function rows.find(id)
  rows.load({ id })
  return step.rows[id] or nil
end

function rows.require(id)
  local row = rows.find(id)
  if not row then
    refuse('no job', { id = id })
  end
  return row
end

function rows.cost_under(cost, limit)
  if type(cost) == 'number' then
    return cost
  end
  return cost[limit] or 1
end

function rows.place(row)
  if not row.place then
    row.place = lanes.place(rows.order_and_created(row), row.id)
  end
  return row.place
end

-- Its state for those who look: a delayed job that is due is waiting, whether a claim noticed or not.
function rows.seen(row)
  local state = row.run[STATE]
  if state ~= WAITS then
    return state
  end
  return row.run[DUE_AT] > step.now and DELAYED or WAITS
end

-- Progress, message, result, error and log lines, where there are any.
function rows.more(row)
  if not row.more then
    set_more(row, not row.no_more and call('HGET', step.prefix .. 'more', row.id))
  end
  return row.more
end

local function encode_more(row)
  local more = row.more
  -- What is completed is done to a hundred percent: that needs no words.
  local progress = row.run[STATE] == COMPLETED and 0 or more.progress
  if progress == 0 and not more.message and not more.result and not more.error and #more.logs == 0 then
    return nil
  end
  local before = more.progress
  more.progress = progress
  local text = records.encode_more(more)
  more.progress = before
  return text
end

-- A job that may be added: what it says of itself.
function rows.read_new(id, said)
  local _, head = unpack_from(said, NEW_HEAD_AT)
  local row = new_row(id, new_run(0, head))
  row.head, row.said = head, said
  return row
end

-- It is added: its body is written at once, a run only when it starts.
function rows.add(row, due_at, lifo)
  local orders, now = step.head.orders + 1, step.now
  step.head.orders = orders
  row.order, row.created_at, row.run[DUE_AT] = lifo and -orders or orders, now, due_at
  row.body = to_bytes('>ddd', row.order, now, due_at) .. row.said
  row.is_new, row.no_more = true, true
end

function rows.delete(row)
  row.gone, row.dirty, row.more_dirty = true, false, false
  step.rows[row.id] = false
  step.deleted_rows = step.deleted_rows or {}
  step.deleted_rows[#step.deleted_rows + 1] = row
end

local function delete_all()
  local ids, more = {}, {}
  for _, row in ipairs(step.deleted_rows) do
    if not step.rows[row.id] then
      ids[#ids + 1] = row.id
      if not row.no_more then
        more[#more + 1] = row.id
      end
    end
  end
  call_many('HDEL', step.prefix .. 'jobs', ids)
  call_many('HDEL', step.prefix .. 'runs', ids)
  call_many('HDEL', step.prefix .. 'more', more)
  step.deleted_rows = nil
end

local function save_more(row, more, no_more)
  local blob = encode_more(row)
  if blob then
    more[#more + 1] = row.id
    more[#more + 1] = blob
    row.has_more = true
  elseif row.has_more then
    no_more[#no_more + 1] = row.id
    row.has_more = false
  end
  row.more_dirty = false
end

function rows.save()
  local bodies, written, more, no_more = {}, {}, {}, {}
  for id, row in pairs(step.rows) do
    if row then
      if row.is_new then
        bodies[#bodies + 1] = id
        bodies[#bodies + 1] = row.body
        row.is_new = false
      end
      if row.dirty then
        written[#written + 1] = id
        written[#written + 1] = row.given or pack(row.run)
        row.dirty, row.has_run = false, true
      end
      if row.more_dirty then
        save_more(row, more, no_more)
      end
    end
  end
  call_many('HSET', step.prefix .. 'jobs', bodies)
  call_many('HSET', step.prefix .. 'runs', written)
  call_many('HSET', step.prefix .. 'more', more)
  call_many('HDEL', step.prefix .. 'more', no_more)
  if step.deleted_rows then
    delete_all()
  end
end

-- A job as a client reads it: id, body, run and the rest; empty where there is none.
function rows.give(row, into)
  local size = #into
  into[size + 1], into[size + 2] = row.id, rows.complete(row).body
  into[size + 3] = (row.has_run or row.dirty) and pack(row.run) or ''
  if row.more then
    into[size + 4] = encode_more(row) or ''
  else
    into[size + 4] = not row.no_more and call('HGET', step.prefix .. 'more', row.id) or ''
  end
end

-- The same at the end of a step that changes it no more.
function rows.give_last(row, into)
  rows.give(row, into)
  row.given = into[#into - 1]
end

return rows
