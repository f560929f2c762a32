-- A client introduces itself to the server it found: is this the server that everybody knew, with all that was counted?
-- What was lost is not known, so after a life that may have lost starts nobody starts where they would still count;
-- until every client that could have started something says that the server remembers its last start.
local RECENT = 60000000 -- clients that claim say so every twenty seconds
local SECOND = 1000000
local LOST_FENCES = 1048576 -- more than could have been given out and forgotten

local function clients_before()
  local found, stored = {}, call('HGETALL', prefix .. 'sessions')
  for place = 1, #stored, 2 do
    if tonumber(stored[place + 1]) >= latest_before - RECENT then
      found[stored[place]] = true
    end
  end
  return found
end

local function nothing_was_lost()
  head.steps = head.steps + 1
  head.lost_at, head.missing = nil, nil
  for name in pairs(limits.all()) do
    limits.opened(name)
  end
end

local function another_life()
  head.steps = head.steps + 1
  -- A fence that was given out and forgotten must not prove anything.
  head.fences = head.fences + LOST_FENCES
  -- The server counts borders of seconds: one second of uptime may be a moment, or nearly two.
  local first, last = now - (args.uptime + 1) * SECOND, now - max(args.uptime - 1, 0) * SECOND
  if head.is_newborn then
    -- Everything was forgotten, and nobody who came before this client could know. Nothing but time helps.
    local lost_at = args.knew == args.run_id and now or last -- the same server: somebody emptied it, just now perhaps
    head.lost_at, head.charges_then, head.missing, head.is_newborn = lost_at, head.charges, nil, nil
    return
  end
  -- A server that ran before the last thing it remembers was a replica: it may have missed things until now.
  head.lost_at = first > latest_before and last or now
  head.charges_then, head.missing = head.charges, args.keeps_a_log and clients_before() or nil
end

local function report()
  if args.seen > head.charges_then then
    head.missing = nil -- it was lost: nothing but time helps
    return
  end
  head.missing[args.session] = nil
end

local function work()
  if args.run_id then
    if head.run_id ~= args.run_id then
      -- A namespace that is made in this life of the server remembers no other one, but a client may.
      head.is_newborn = not head.run_id or nil
    end
    local known = head.is_newborn and (args.knew or args.run_id) or head.run_id
    local emptied = head.is_newborn and args.knew_born and args.knew_born ~= head.born
    if not args.trusts and (emptied or (known ~= args.run_id and not args.loses_nothing)) then
      another_life()
    end
    head.run_id = args.run_id
  end
  if head.missing and args.run_id then
    report()
    if head.missing and next(head.missing) == nil then
      nothing_was_lost()
    end
  end
  if args.bye then
    call('HDEL', prefix .. 'sessions', args.session)
  elseif args.claims then
    call('HSET', prefix .. 'sessions', args.session, format('%.0f', now))
  end
  wakes.tell_of_its_end(args.knew_born)
  return { pack({ now, head.charges, head.lost_at or false, head.born or false }) }
end
step('hello', work, true)
