-- A client introduces itself to the server it found: is this the server that everybody knew, with all that was counted?
-- What was lost is not known, so after a life that may have lost starts nobody starts where they would still count;
-- until every client that could have started something says that the server remembers its last start.
local limits = require('limits')
local step = require('step')
local wakes = require('wakes')
local call, pack, format, max = redis.call, cmsgpack.pack, string.format, math.max

local RECENT = 60000000 -- clients that claim say so every twenty seconds
local SECOND = 1000000
local LOST_FENCES = 1048576 -- more than could have been given out and forgotten

local function clients_before()
  local found, stored = {}, call('HGETALL', step.prefix .. 'sessions')
  for place = 1, #stored, 2 do
    if tonumber(stored[place + 1]) >= step.latest_before - RECENT then
      found[stored[place]] = true
    end
  end
  return found
end

local function nothing_was_lost()
  step.head.steps = step.head.steps + 1
  step.head.lost_at, step.head.missing = nil, nil
  for name in pairs(limits.all()) do
    limits.opened(name)
  end
end

local function another_life()
  step.head.steps = step.head.steps + 1
  -- A fence that was given out and forgotten must not prove anything.
  step.head.fences = step.head.fences + LOST_FENCES
  -- The server counts borders of seconds: one second of uptime may be a moment, or nearly two.
  local first, last = step.now - (step.args.uptime + 1) * SECOND, step.now - max(step.args.uptime - 1, 0) * SECOND
  if step.head.is_newborn then
    -- Everything was forgotten, and nobody who came before this client could know. Nothing but time helps.
    -- The same server: somebody emptied it, just now perhaps.
    local lost_at = step.args.knew == step.args.run_id and step.now or last
    step.head.lost_at, step.head.charges_then, step.head.missing, step.head.is_newborn =
      lost_at, step.head.charges, nil, nil
    return
  end
  -- A server that ran before the last thing it remembers was a replica: it may have missed things until now.
  step.head.lost_at = first > step.latest_before and last or step.now
  step.head.charges_then, step.head.missing = step.head.charges, step.args.keeps_a_log and clients_before() or nil
end

local function report()
  if step.args.seen > step.head.charges_then then
    step.head.missing = nil -- it was lost: nothing but time helps
    return
  end
  step.head.missing[step.args.session] = nil
end

local function work()
  if step.args.run_id then
    if step.head.run_id ~= step.args.run_id then
      -- A namespace that is made in this life of the server remembers no other one, but a client may.
      step.head.is_newborn = not step.head.run_id or nil
    end
    local known = step.head.is_newborn and (step.args.knew or step.args.run_id) or step.head.run_id
    local emptied = step.head.is_newborn and step.args.knew_born and step.args.knew_born ~= step.head.born
    if not step.args.trusts and (emptied or (known ~= step.args.run_id and not step.args.loses_nothing)) then
      another_life()
    end
    step.head.run_id = step.args.run_id
  end
  if step.head.missing and step.args.run_id then
    report()
    if step.head.missing and next(step.head.missing) == nil then
      nothing_was_lost()
    end
  end
  if step.args.bye then
    call('HDEL', step.prefix .. 'sessions', step.args.session)
  elseif step.args.claims then
    call('HSET', step.prefix .. 'sessions', step.args.session, format('%.0f', step.now))
  end
  wakes.tell_of_its_end(step.args.knew_born)
  return { pack({ step.now, step.head.charges, step.head.lost_at or false, step.head.born or false }) }
end

return { work = work, looks = true }
