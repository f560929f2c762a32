-- A job: its body, which never changes, and its run, which a start makes and every step after it changes.
-- The body is order, created_at, due_at, the length of its head, the head {queue, task, group, priority, cost, keep,
-- unique, unique_ttl, ...} and the data, which no script looks at.
local commands = require('commands')
local constants = require('constants')
local lanes = require('lanes')
local step = require('step')
local call, pack, unpack_one, unpack_from = redis.call, cmsgpack.pack, cmsgpack.unpack, cmsgpack.unpack_one
local to_bytes, from_bytes = struct.pack, struct.unpack
local call_many, read_many = commands.call_many, commands.read_many
local NEVER = constants.NEVER
local WAITS, COMPLETED, DELAYED = constants.WAITS, constants.COMPLETED, constants.DELAYED
local refuse = step.refuse

local rows = {}

-- A job that waits; one table with room for all that is ever said of it, because tables that grow are made anew.
local function new_row(id, said, body, order, created_at, due_at)
  return {
    id = id,
    state = WAITS,
    attempts_made = 0,
    crashes = 0,
    returns = 0,
    fence = 0,
    gate = 0, -- 0: its start counts where it was stamped, 1: open, 2: it counts where its handler began
    guard = NEVER, -- a handler that begins later than this after its start asks first
    lease_until = 0,
    due_at = due_at,
    order = order,
    created_at = created_at,
    body = body,
    queue = said[1],
    task = said[2],
    group = said[3],
    priority = said[4],
    cost = said[5],
    keep = said[6],
    unique = said[7],
    unique_ttl = said[8],
    dirty = false,
  }
end

local NOTHING = {}

local function set_body(row, body)
  local order, created_at, due_at = from_bytes('>ddd', body)
  local _, said = unpack_from(body, 28)
  row.queue, row.task, row.group, row.priority = said[1], said[2], said[3], said[4]
  row.cost, row.keep, row.unique, row.unique_ttl = said[5], said[6], said[7], said[8]
  row.body, row.order, row.created_at = body, order, created_at
  return due_at
end

-- The run also says what the end of a run has to know, so that the body need not be read then.
local function set_run(row, run)
  local found = unpack_one(run)
  row.has_run = true
  row.state, row.attempts_made, row.crashes, row.returns = found[1], found[2], found[3], found[4]
  row.due_at, row.started_at, row.finished_at = found[5], found[6] or nil, found[7] or nil
  row.fence, row.worker, row.cancel_asked = found[8], found[9] or nil, found[10]
  row.lease_until, row.keys = found[11], found[12] or nil
  row.queue, row.keep, row.unique = found[13], found[14] or nil, found[15] or nil
  row.gate, row.guard = found[16] or 0, found[17] or NEVER
end

local function decode(id, body, run)
  local order, created_at, due_at = from_bytes('>ddd', body)
  local _, said = unpack_from(body, 28)
  local row = new_row(id, said, body, order, created_at, due_at)
  if run then
    set_run(row, run)
  end
  return row
end

local function set_more(row, blob)
  if not blob then
    row.more = { progress = 0, logs = {} }
    return
  end
  local found = unpack_one(blob)
  row.more = {
    progress = found[1],
    message = found[2] or nil,
    result = found[3] or nil,
    error = found[4] or nil,
    logs = found[5],
  }
  row.has_more = true
end

-- A job that runs, without its body, from what the store has of it.
function rows.hold_run(id, run, more)
  local row = new_row(id, NOTHING, false, 0, 0, 0)
  set_run(row, run)
  if more then
    set_more(row, more)
  else
    row.no_more = true
  end
  step.rows[id] = row
end

-- The whole of a job that was read without its body.
function rows.complete(row)
  if not row.body then
    local keep, unique = row.keep, row.unique
    set_body(row, call('HGET', step.prefix .. 'jobs', row.id))
    row.keep, row.unique = keep, unique
  end
  return row
end

-- Jobs by their ids, in one go; those that do not exist are left out of the cache as `false`.
function rows.load(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    local row = step.rows[id]
    if row == nil then
      missing[#missing + 1] = id
      step.rows[id] = false
    elseif row then
      rows.complete(row)
    end
  end
  if #missing == 0 then
    return
  end
  local bodies, found = read_many('HMGET', step.prefix .. 'jobs', missing), {}
  for place, id in ipairs(missing) do
    if bodies[place] then
      found[#found + 1] = id
    end
  end
  if #found == 0 then
    return
  end
  local runs_found, next_run = read_many('HMGET', step.prefix .. 'runs', found), 0
  for place, id in ipairs(missing) do
    if bodies[place] then
      next_run = next_run + 1
      step.rows[id] = decode(id, bodies[place], runs_found[next_run])
    end
  end
end

-- True while a live job keeps its unique key from others.
function rows.has_key(row)
  return not row.unique_ttl or step.now < row.created_at + row.unique_ttl
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
    row.place = lanes.place(row.order, row.id)
  end
  return row.place
end

local function encode_run(row)
  local run = {
    row.state,
    row.attempts_made,
    row.crashes,
    row.returns,
    row.due_at,
    row.started_at or false,
    row.finished_at or false,
    row.fence,
    row.worker or false,
    row.cancel_asked or false,
    row.lease_until,
    row.keys or false,
    row.queue,
    row.keep or false,
    row.unique or false,
  }
  if row.gate > 0 or row.guard < NEVER then
    run[16], run[17] = row.gate, row.guard
  end
  return pack(run)
end

-- Its state for those who look: a delayed job that is due is waiting, whether a claim noticed or not.
function rows.seen(row)
  if row.state ~= WAITS then
    return row.state
  end
  return row.due_at > step.now and DELAYED or WAITS
end

-- Progress, message, result, error and log lines, where there are any.
function rows.more(row)
  if not row.more then
    set_more(row, not row.no_more and call('HGET', step.prefix .. 'more', row.id))
  end
  return row.more
end

-- The same for many jobs, in one go.
function rows.load_more(ids)
  local found = read_many('HMGET', step.prefix .. 'more', ids)
  for place, id in ipairs(ids) do
    local row = step.rows[id]
    if row and not row.more then
      if found[place] then
        set_more(row, found[place])
      else
        row.no_more = true
      end
    end
  end
end

local function encode_more(row)
  local more = row.more
  -- What is completed is done to a hundred percent: that needs no words.
  local progress = row.state == COMPLETED and 0 or more.progress
  if progress == 0 and not more.message and not more.result and not more.error and #more.logs == 0 then
    return nil
  end
  return pack({ progress, more.message or false, more.result or false, more.error or false, more.logs })
end

-- A job that may be added: what it says of itself.
function rows.read_new(id, said)
  local _, head_of = unpack_from(said, 4)
  local row = new_row(id, head_of, false, 0, 0, 0)
  row.said = said
  return row
end

-- It is added: its body is written at once, a run only when it starts.
function rows.add(row, due_at, lifo)
  step.head.orders = step.head.orders + 1
  row.order, row.created_at, row.due_at = lifo and -step.head.orders or step.head.orders, step.now, due_at
  row.body = to_bytes('>ddd', row.order, step.now, due_at) .. row.said
  row.is_new, row.no_more = true, true
end

function rows.delete(row)
  row.gone, row.dirty, row.more_dirty = true, true, false
  step.rows[row.id] = false
  step.deleted_rows = step.deleted_rows or {}
  step.deleted_rows[#step.deleted_rows + 1] = row
end

function rows.save()
  if next(step.rows) == nil and not step.deleted_rows then
    return
  end
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
        written[#written + 1] = row.given or encode_run(row)
        row.dirty, row.has_run = false, true
      end
      if row.more_dirty then
        local blob = encode_more(row)
        if blob then
          more[#more + 1] = id
          more[#more + 1] = blob
        elseif row.has_more then
          no_more[#no_more + 1] = id
        end
        row.more_dirty = false
      end
    end
  end
  call_many('HSET', step.prefix .. 'jobs', bodies)
  call_many('HSET', step.prefix .. 'runs', written)
  call_many('HSET', step.prefix .. 'more', more)
  call_many('HDEL', step.prefix .. 'more', no_more)
  if step.deleted_rows then
    local ids = {}
    for _, row in ipairs(step.deleted_rows) do
      if not step.rows[row.id] then
        ids[#ids + 1] = row.id
      end
    end
    call_many('HDEL', step.prefix .. 'jobs', ids)
    call_many('HDEL', step.prefix .. 'runs', ids)
    call_many('HDEL', step.prefix .. 'more', ids)
    step.deleted_rows = nil
  end
end

-- A job as a client reads it: id, body, run and the rest; empty where there is none.
function rows.give(row, into)
  local size = #into
  into[size + 1], into[size + 2] = row.id, rows.complete(row).body
  into[size + 3] = (row.has_run or row.dirty) and encode_run(row) or ''
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
