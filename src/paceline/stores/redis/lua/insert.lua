-- Step 1, insert: check everything first, then store everything. A job is {id, max_size, delay, due_at, lifo}
-- and a body, which is an argument of its own because it holds the user's bytes.
local classes = require('classes')
local commands = require('commands')
local constants = require('constants')
local groups = require('groups')
local join = require('join').join
local limits = require('limits')
local lines = require('lines')
local records = require('records')
local rows = require('rows')
local step = require('step')
local wakes = require('wakes')
local call, pack, abs, max = redis.call, cmsgpack.pack, math.abs, math.max
local call_many = commands.call_many
local SEP = constants.SEP
local refuse = step.refuse
local QUEUE, UNIQUE, TASK, GROUP = records.QUEUE, records.UNIQUE, records.TASK, records.GROUP
local COST = records.COST

local added, by_unique, sizes

-- An id or unique key that is taken gives the job that has it.
local function existing(row)
  local found = step.rows[row.id]
  if found or not row.run[UNIQUE] then
    return found
  end
  local name = row.run[QUEUE] .. SEP .. row.run[UNIQUE]
  local taken = by_unique[name]
  if not taken then
    local id = call('HGET', step.prefix .. 'unique' .. SEP .. row.run[QUEUE], row.run[UNIQUE])
    taken = id and rows.find(id)
  end
  if taken and rows.has_key(taken) then
    return taken
  end
end

-- Refuse a cost that one of the job's limits never allows.
local function check_fits(row)
  for _, name in ipairs(classes.class_for(lines.get(row.run[QUEUE]), row.head[TASK]).names) do
    local limit = limits.find(name)
    if limit.by ~= 'group' or row.head[GROUP] then
      local cost = rows.cost_under(row.head[COST], limit.name)
      local _, parts = limits.kind(limit, limit.by == 'group' and row.head[GROUP] or nil)
      for _, part in ipairs(parts) do
        if part[1] == 'rate' and cost > part[2] then
          refuse('never fits', { limit = limit.name, cost = cost, allowed = part[2] })
        end
      end
    end
  end
end

local function count_group(row, max_size)
  local name = row.run[QUEUE] .. SEP .. row.head[GROUP]
  local size = sizes[name] or groups.get(lines.get(row.run[QUEUE]), row.head[GROUP]).size
  if max_size and size >= max_size then
    refuse('group full', { group = row.head[GROUP], size = size, max_size = max_size })
  end
  sizes[name] = size + 1
end

-- Read the groups that the jobs go to, in few commands.
local function load_groups(new)
  local fields = {}
  for _, row in ipairs(new) do
    local list = fields[row.run[QUEUE]]
    if not list then
      list = {}
      fields[row.run[QUEUE]] = list
    end
    local field = row.head[GROUP] or ''
    if not list[field] then
      list[field], list[#list + 1] = true, field
    end
  end
  for queue, list in pairs(fields) do
    groups.load(lines.get(queue), list)
  end
end

-- Check one job, and give it its number: a job is {id, max_size, delay, due_at, lifo}.
local function add(row, job)
  local max_size, delay, due_at, lifo = job[2], job[3], job[4], job[5]
  if row.head[COST] ~= 1 then
    check_fits(row)
  end
  if row.head[GROUP] then
    count_group(row, max_size)
  end
  rows.add(row, due_at and max(due_at, step.now) or step.now + delay, lifo)
  step.rows[row.id] = row
  added[#added + 1] = row
  if row.run[UNIQUE] then
    by_unique[row.run[QUEUE] .. SEP .. row.run[UNIQUE]] = row
  end
end

-- Everything is checked: put the jobs where they wait.
local function store()
  local index = {}
  for _, row in ipairs(added) do
    if row.run[UNIQUE] then
      call('HSET', step.prefix .. 'unique' .. SEP .. row.run[QUEUE], row.run[UNIQUE], row.id)
    end
    local list = index[row.run[QUEUE]]
    if not list then
      list = {}
      index[row.run[QUEUE]] = list
      wakes.queue(row.run[QUEUE])
    end
    local size = #list
    list[size + 1], list[size + 2] = abs(row.order), row.id
    lines.arrive(lines.get(row.run[QUEUE]), row)
  end
  for queue, list in pairs(index) do
    call_many('ZADD', step.prefix .. 'index' .. SEP .. queue, list)
  end
end

local function work()
  local jobs, words = step.args.jobs, step.words
  local ids, new, orders, answer = {}, {}, {}, { '' }
  added, by_unique, sizes = {}, {}, {}
  for place, job in ipairs(jobs) do
    ids[place] = job[1]
  end
  local joined = join(jobs, ids)
  if joined then
    return joined
  end
  for place, id in ipairs(ids) do
    new[place] = rows.read_new(id, words[place + 1])
  end
  rows.load(ids)
  load_groups(new)
  for place, row in ipairs(new) do
    local found = existing(row)
    if found then
      orders[place] = false
      rows.give(found, answer)
    else
      add(row, jobs[place])
      orders[place] = row.order
    end
  end
  store()
  answer[1] = pack({ step.now, orders })
  return answer
end

return { work = work }
