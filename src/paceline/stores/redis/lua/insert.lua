-- Step 1, insert: check everything first, then store everything. A job is {id, max_size, delay, due_at, lifo}
-- and a body, which is an argument of its own because it holds the user's bytes.
local commands = require('commands')
local constants = require('constants')
local lanes = require('lanes')
local limits = require('limits')
local lines = require('lines')
local rows = require('rows')
local step = require('step')
local turns = require('turns')
local wakes = require('wakes')
local call, pack, unpack_one, unpack_from = redis.call, cmsgpack.pack, cmsgpack.unpack, cmsgpack.unpack_one
local to_bytes, format, abs, max = struct.pack, string.format, math.abs, math.max
local call_many, read_many = commands.call_many, commands.read_many
local SEP = constants.SEP
local refuse = step.refuse

local added, by_unique, sizes

-- An id or unique key that is taken gives the job that has it.
local function existing(row)
  local found = step.rows[row.id]
  if found or not row.unique then
    return found
  end
  local name = row.queue .. SEP .. row.unique
  local taken = by_unique[name]
  if not taken then
    local id = call('HGET', step.prefix .. 'unique' .. SEP .. row.queue, row.unique)
    taken = id and rows.find(id)
  end
  if taken and rows.has_key(taken) then
    return taken
  end
end

-- Refuse a cost that one of the job's limits never allows.
local function check_fits(row)
  for _, name in ipairs(lines.class_for(lines.get(row.queue), row.task).names) do
    local limit = limits.find(name)
    if limit.by ~= 'group' or row.group then
      local cost = rows.cost_under(row.cost, limit.name)
      local _, parts = limits.kind(limit, limit.by == 'group' and row.group or nil)
      for _, part in ipairs(parts) do
        if part[1] == 'rate' and cost > part[2] then
          refuse('never fits', { limit = limit.name, cost = cost, allowed = part[2] })
        end
      end
    end
  end
end

local function count_group(row, max_size)
  local name = row.queue .. SEP .. row.group
  local size = sizes[name] or lanes.group(lines.get(row.queue), row.group).size
  if max_size and size >= max_size then
    refuse('group full', { group = row.group, size = size, max_size = max_size })
  end
  sizes[name] = size + 1
end

-- What jobs without unique key, cost, delay and largest size have in common when all go to one lane: {queue, class,
-- field}; nothing when they do not.
local function one_lane(jobs)
  local queue, cls, field, line
  for place, job in ipairs(jobs) do
    local _, said = unpack_from(step.words[place + 1], 4)
    if job[2] or job[3] ~= 0 or job[4] or said[5] ~= 1 or said[7] then
      return nil
    end
    if place == 1 then
      queue, field = said[1], said[3] or ''
      line = lines.get(queue)
      cls = line.class_of_task[said[2]]
    end
    if not cls or said[1] ~= queue or (said[3] or '') ~= field or line.class_of_task[said[2]] ~= cls then
      return nil
    end
    job[6] = said[4]
  end
  return line, cls, field
end

-- Most jobs join a lane in which others wait already: then nothing changes but the number of those who wait. The lane
-- must be the only one of its group; one that is blocked may open for a new head, and goes the long way like all
-- others.
local function join(jobs, ids)
  local line, cls, field = one_lane(jobs)
  local text = line and call('HGET', step.prefix .. 'groups' .. SEP .. line.name, field)
  local group = text and unpack_one(text)
  if not group or #group ~= 10 or group[5] ~= cls.id or group[6] == 2 or group[9] == 0 then
    return nil
  end
  local found, seen = read_many('HMGET', step.prefix .. 'jobs', ids), {}
  for place, id in ipairs(ids) do
    if found[place] or seen[id] then
      return nil
    end
    seen[id] = true
  end
  local number, orders, bodies, index, members = #ids, {}, {}, {}, {}
  for place, job in ipairs(jobs) do
    local id, first, second = job[1], 2 * place - 1, 2 * place
    step.head.orders = step.head.orders + 1
    local order = job[5] and -step.head.orders or step.head.orders
    orders[place] = order
    bodies[first], bodies[second] = id, to_bytes('>ddd', order, step.now, step.now) .. step.words[place + 1]
    index[first], index[second] = format('%.0f', step.head.orders), id
    members[first], members[second] = job[6], lanes.place(order, id)
  end
  call_many('HSET', step.prefix .. 'jobs', bodies)
  call_many('ZADD', step.prefix .. 'index' .. SEP .. line.name, index)
  call_many('ZADD', lanes.key(line, cls, field), members)
  group[3], group[4], group[9] = group[3] + number, group[4] + number, group[9] + number
  call('HSET', step.prefix .. 'groups' .. SEP .. line.name, field, pack(group))
  line.counts[1], cls.waiting = line.counts[1] + number, cls.waiting + number
  turns.forget(line, cls)
  wakes.queue(line.name)
  return { pack({ step.now, orders }) }
end

local function work()
  local ids, orders, answer = {}, {}, { '' }
  added, by_unique, sizes = {}, {}, {}
  for place, job in ipairs(step.args.jobs) do
    ids[place] = job[1]
  end
  local joined = join(step.args.jobs, ids)
  if joined then
    return joined
  end
  rows.load(ids)
  for place, job in ipairs(step.args.jobs) do
    local row = rows.read_new(job[1], step.words[place + 1])
    local found = existing(row)
    if found then
      orders[place] = false
      rows.give(found, answer)
    else
      if row.cost ~= 1 then
        check_fits(row)
      end
      if row.group then
        count_group(row, job[2])
      end
      rows.add(row, job[4] and max(job[4], step.now) or step.now + job[3], job[5])
      orders[place] = row.order
      step.rows[row.id] = row
      added[#added + 1] = row
      if row.unique then
        by_unique[row.queue .. SEP .. row.unique] = row
      end
    end
  end
  local index = {}
  for _, row in ipairs(added) do
    if row.unique then
      call('HSET', step.prefix .. 'unique' .. SEP .. row.queue, row.unique, row.id)
    end
    if not index[row.queue] then
      index[row.queue] = {}
      wakes.queue(row.queue)
    end
    local list = index[row.queue]
    list[#list + 1] = format('%.0f', abs(row.order))
    list[#list + 1] = row.id
    lines.arrive(lines.get(row.queue), row)
  end
  for queue, list in pairs(index) do
    call_many('ZADD', step.prefix .. 'index' .. SEP .. queue, list)
  end
  answer[1] = pack({ step.now, orders })
  return answer
end

return { work = work }
