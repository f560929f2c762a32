-- Remove finished jobs after their `keep`, old starts, and what idle groups and limits left; a bounded number at once.
local commands = require('commands')
local constants = require('constants')
local groups = require('groups')
local lanes = require('lanes')
local lines = require('lines')
local looking = require('looking')
local meters = require('meters')
local records = require('records')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local call, pack, unpack_one, format = redis.call, cmsgpack.pack, cmsgpack.unpack, string.format
local min, match_text = math.min, string.match
local instant = commands.instant
local SEP = constants.SEP
local QUEUE = records.QUEUE

local STARTS_KEPT = constants.STARTS_KEPT

local function drop_old_starts(line)
  local key = step.prefix .. 'starts' .. SEP .. line.name
  local left = call('LLEN', key)
  local oldest = step.now - step.head.longest
  while left > STARTS_KEPT do
    local found = call('LRANGE', key, 0, min(left - STARTS_KEPT, 1000) - 1)
    local over = 0
    for place, blob in ipairs(found) do
      if unpack_one(blob)[2] >= oldest then
        break
      end
      over = place
    end
    if over == 0 then
      return
    end
    call('LTRIM', key, over, -1)
    left = left - over
  end
end

local function forget_idle_meters()
  local found =
    call('ZRANGEBYSCORE', step.prefix .. 'idle', '-inf', format('%.0f', step.now), 'LIMIT', 0, step.args.most)
  for _, member in ipairs(found) do
    local name, group = match_text(member, '^(.-)' .. SEP .. '(.*)$')
    local meter = meters.find(name, group)
    if meter and meters.forgettable(meter) then
      meters.drop(meter)
    else
      -- It comes back into this list when something changes under it.
      call('ZREM', step.prefix .. 'idle', member)
    end
  end
  return #found
end

-- Clients and workers that were not heard of for an hour are gone without a word, and so are sleepers.
local function forget_the_silent(all_lines)
  local oldest = step.now - 3600000000
  local sessions, workers = call('HGETALL', step.prefix .. 'sessions'), call('HGETALL', step.prefix .. 'workers')
  for place = 1, #sessions, 2 do
    if tonumber(sessions[place + 1]) < oldest then
      call('HDEL', step.prefix .. 'sessions', sessions[place])
    end
  end
  for place = 1, #workers, 2 do
    if unpack_one(workers[place + 1]).seen_at < oldest then
      for _, what in ipairs({ 'workers', 'claims', 'ears' }) do
        call('HDEL', step.prefix .. what, workers[place])
      end
    end
  end
  wakes.forget_stale(all_lines)
end

-- When there will be something to remove, if nothing happens until then.
local function next_due()
  local at = step.now + 600000000
  local kept = call('ZRANGEBYSCORE', step.prefix .. 'done', instant(step.now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local idle = call('ZRANGE', step.prefix .. 'idle', 0, 0, 'WITHSCORES')
  return min(at, tonumber(kept[2] or at), tonumber(idle[2] or at))
end

local function work()
  local ids =
    call('ZRANGEBYSCORE', step.prefix .. 'done', '-inf', format('(%.0f', step.now), 'LIMIT', 0, step.args.most)
  rows.load(ids)
  local removed = 0
  for _, id in ipairs(ids) do
    local row = step.rows[id]
    if row then
      runs.remove(lines.get(row.run[QUEUE]), row)
      removed = removed + 1
    else
      step.ends.not_kept[#step.ends.not_kept + 1] = id
    end
  end
  local all_lines = lines.all()
  forget_the_silent(all_lines)
  for _, line in ipairs(all_lines) do
    drop_old_starts(line)
    line.groups_waiting = looking.groups_waiting(line)
    local resting = call('SMEMBERS', step.prefix .. 'resting' .. SEP .. line.name)
    groups.load(line, resting)
    for _, field in ipairs(resting) do
      lanes.forget_if_idle(line.groups[field])
    end
  end
  local forgotten = forget_idle_meters()
  local more = #ids == step.args.most or forgotten == step.args.most
  step.head.pruned_steps, step.head.prune_due = more and -1 or step.head.steps, next_due()
  return { pack({ removed, more }) }
end

return { work = work, looks = true }
