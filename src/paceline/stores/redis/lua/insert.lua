-- Step 1, insert: check everything first, then store everything. A job is {id, max_size, delay, due_at, lifo}
-- and a body, which is an argument of its own because it holds the user's bytes.
local added, by_unique, sizes

-- An id or unique key that is taken gives the job that has it.
local function existing(row)
  local found = rows.held[row.id]
  if found or not row.unique then
    return found
  end
  local name = row.queue .. SEP .. row.unique
  local taken = by_unique[name]
  if not taken then
    local id = call('HGET', prefix .. 'unique' .. SEP .. row.queue, row.unique)
    taken = id and rows.find(id)
  end
  if taken and (not taken.unique_ttl or now < taken.created_at + taken.unique_ttl) then
    return taken
  end
end

-- Refuse a cost that one of the job's limits never allows.
local function check_fits(row)
  for _, limit in ipairs(limits.meeting(row.queue, row.task)) do
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

local function work()
  local ids, orders, answer = {}, {}, { '' }
  added, by_unique, sizes = {}, {}, {}
  for place, job in ipairs(args.jobs) do
    ids[place] = job[1]
  end
  rows.load(ids)
  for place, job in ipairs(args.jobs) do
    local row = rows.read_new(job[1], words[place + 1])
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
      rows.add(row, job[4] and max(job[4], now) or now + job[3], job[5])
      orders[place] = row.order
      rows.held[row.id] = row
      added[#added + 1] = row
      if row.unique then
        by_unique[row.queue .. SEP .. row.unique] = row
      end
    end
  end
  local index = {}
  for _, row in ipairs(added) do
    if row.unique then
      call('HSET', prefix .. 'unique' .. SEP .. row.queue, row.unique, row.id)
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
    call_many('ZADD', prefix .. 'index' .. SEP .. queue, list)
  end
  answer[1] = pack({ now, orders })
  return answer
end
step('insert', work)
