-- How full keys are, for those who look.
-- How many jobs wait under a key, or under all keys of a limit; one per group counts no jobs without a group.
local constants = require('constants')
local groups = require('groups')
local kinds = require('kinds')
local limits = require('limits')
local lines = require('lines')
local meters = require('meters')
local permits = require('permits')
local records = require('records')
local rows = require('rows')
local step = require('step')
local call, unpack_one, format, sub, max = redis.call, cmsgpack.unpack, string.format, string.sub, math.max
local SEP = constants.SEP
local KEYS = records.KEYS
local WAITING = 3 -- of the record of a group

local function waiting_under(name, group)
  local number, by_group = 0, limits.require(name).by == 'group'
  for _, line in ipairs(lines.all()) do
    for _, cls in pairs(line.classes) do
      for _, met in ipairs(cls.names) do
        if met == name then
          local lane = (by_group or group) and groups.find(groups.get(line, group or ''), cls)
          local alone = lane and lane.jobs or 0
          number = number + (group and alone or cls.waiting - alone)
        end
      end
    end
  end
  return number
end

-- Leases that are over count until a claim takes them back, but nobody who asks has to wait for them.
local function over_under(meter)
  local number = 0
  for _, name in ipairs(call('ZRANGEBYSCORE', step.prefix .. 'leases', '-inf', format('%.0f', step.now))) do
    local id = sub(name, 10)
    local keys
    if sub(name, 9, 9) == 'j' then
      keys = rows.find(id).run[KEYS]
    else
      keys = permits.permit(id).run[KEYS]
    end
    for place = 1, #(keys or {}), 4 do
      if keys[place] == meter.name and (keys[place + 1] or nil) == meter.group and keys[place + 2] == meter.epoch then
        number = number + 1
      end
    end
  end
  return number
end

-- How many jobs of a queue are in each state.
local function counts_of(line)
  local counts = line.counts
  local due = call('ZCOUNT', step.prefix .. 'delayed' .. SEP .. line.name, '-inf', format('%.0f', step.now))
  return { counts[1] + due, counts[2] - due, counts[3], counts[4], counts[5], counts[6] }
end

-- How many groups of a queue have a job that waits; a queue that an earlier release wrote to is counted.
local function groups_waiting(line)
  if line.groups_waiting then
    return line.groups_waiting
  end
  local number = 0
  for _, blob in ipairs(call('HVALS', step.prefix .. 'groups' .. SEP .. line.name)) do
    number = number + (unpack_one(blob)[WAITING] > 0 and 1 or 0)
  end
  return number
end

-- How full the key is, by its fullest part; nothing is allowed where nothing limits it.
local function used_and_allowed(meter)
  local used, allowed, share = meter.in_flight, false, -1
  for place, part in ipairs(meter.parts) do
    local kind = kinds[part[1]]
    local its_used = kind.used(meter, place, part, meter.states[place]) + (part[1] == 'rate' and meter.open or 0)
    local its_allowed = kind.allowed(part)
    if its_used / its_allowed > share then
      used, allowed, share = its_used, its_allowed, its_used / its_allowed
    end
  end
  return used, allowed
end

local function usage_of(meter, cost, waiting)
  local in_flight = meter.in_flight
  meter.in_flight = in_flight - over_under(meter)
  local used, allowed = used_and_allowed(meter)
  local held, reason = meter.hold_until, meter.hold_reason
  if meters.safe_at(meter) > max(step.now, held) then
    held, reason = meters.safe_at(meter), 'the server began a new life and may have lost starts'
  end
  local answer = {
    limit = meter.name,
    group = meter.group,
    parts = meter.parts,
    used = used,
    allowed = allowed or nil,
    hold_until = held > step.now and held or 0,
    hold_reason = reason,
    opens_at = meters.opens_at(meter, cost),
    waiting = waiting,
    now = step.now,
    reserved_by = meter.reserved_by,
    cost = cost,
    open = meter.open,
  }
  meter.in_flight = in_flight
  return answer
end

return {
  waiting_under = waiting_under,
  over_under = over_under,
  counts_of = counts_of,
  groups_waiting = groups_waiting,
  usage_of = usage_of,
}
