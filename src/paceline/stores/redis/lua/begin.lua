-- What every step begins with: its arguments, the namespace's head, the time, and how it says no.
-- A server lends its functions to a step only while it runs, and looking for one costs as much as calling it.
local call, pack, unpack_one, unpack_from, to_bytes, from_bytes, format, sub
local ipairs, pairs, next, type, tonumber, tostring, unpack, error, pcall
local floor, ceil, abs, max, min, concat, remove_at, sort, find_text, match_text, each_match

local function borrow()
  local lent = _G
  ipairs, pairs, next, type, tonumber = lent.ipairs, lent.pairs, lent.next, lent.type, lent.tonumber
  tostring, unpack, error, pcall = lent.tostring, lent.unpack, lent.error, lent.pcall
  floor, ceil, abs, max, min = math.floor, math.ceil, math.abs, math.max, math.min
  concat, remove_at, sort = table.concat, table.remove, table.sort
  find_text, match_text, each_match = string.find, string.match, string.gmatch
  call, pack, unpack_one, unpack_from = redis.call, cmsgpack.pack, cmsgpack.unpack, cmsgpack.unpack_one
  to_bytes, from_bytes, format, sub = struct.pack, struct.unpack, string.format, string.sub
  -- Collect when there is ten times as much as is in use, which is about a megabyte: what is in use, this library above
  -- all, is looked at each time.
  lent.collectgarbage('setpause', 1000)
end

local SEP = '\31' -- no name has control characters, so joined names stay apart
local NEVER = 4611686018427387904
local ONE = 65536 -- the turn of one start
local MAX_CRASHES = 3

-- Of the call that runs now: its arguments, the prefix of its keys, the namespace's head, and the store's time.
local args, words, head_key, prefix, head, now, latest_before

local function new_head()
  return {
    latest = 0, -- the store's time never goes back behind this
    orders = 0, -- jobs added so far
    fences = 0, -- starts so far
    epochs = 0, -- limits declared so far
    charges = 0, -- starts counted under keys so far
    next_expiry = NEVER, -- when the first operator's word ends
    longest = 60000000, -- how far back a decision can look
    steps = 0, -- steps that may have changed what a claim gives
    pruned_steps = -1, -- the same when the last prune left nothing to do before `prune_due`
    prune_due = 0,
    reserved = {}, -- keys whose room is kept for a big job, in order: {name, group}
    awaiting = {}, -- permits that room is kept for
  }
end

-- The head is written by every step: the numbers that always change as a list, the rest only where there is any.
local function encode_head()
  local rest = false
  local watched = head.watched_until and head.watched_until > now
  if head.lost_at or head.woken or watched or #head.reserved > 0 or next(head.awaiting) then
    rest = {
      reserved = head.reserved,
      awaiting = head.awaiting,
      lost_at = head.lost_at,
      charges_then = head.charges_then,
      missing = head.missing,
      woken = head.woken,
      watched_until = head.watched_until,
    }
  end
  return pack({
    head.latest,
    head.orders,
    head.fences,
    head.epochs,
    head.charges,
    head.next_expiry,
    head.longest,
    NEVER, -- for workers of earlier releases: no handler begins too late
    rest,
    head.run_id or false,
    head.steps,
    head.pruned_steps,
    head.prune_due,
    head.is_newborn or false,
    head.born or false,
  })
end

local function decode_head(blob)
  local found = new_head()
  if not blob then
    return found
  end
  local said = unpack_one(blob)
  found.latest, found.orders, found.fences, found.epochs, found.charges = said[1], said[2], said[3], said[4], said[5]
  found.next_expiry, found.longest = said[6], said[7]
  found.run_id, found.steps, found.pruned_steps, found.prune_due = said[10] or nil, said[11], said[12], said[13]
  found.is_newborn, found.born = said[14] or nil, said[15] or nil
  if said[9] then
    for name, value in pairs(said[9]) do
      found[name] = value
    end
  end
  return found
end

-- A table for this step: the one of the step before if that left nothing in it. Making tables is what costs most.
local function empty(before)
  return before and next(before) == nil and before or {}
end

-- A namespace that knows nothing begins a life: its name is the instant, on a clock that no test moves. Fences count on
-- from there, so that one that was given out in a life before, and forgotten with it, proves nothing. (Tests that move
-- the clock compare fences with those of other stores.)
local function begin_life()
  local time = call('TIME')
  head.born = time[1] * 1000000 + time[2]
  head.fences = args.now and 0 or floor(head.born / 1000)
end

-- The head as the last step left it: as long as its text is the same it need not be read anew.
local kept_head, kept_text, kept_key

local function read_head()
  local text = call('GET', head_key)
  if text and text == kept_text and head_key == kept_key then
    head = kept_head
  else
    head = decode_head(text)
    if not text then
      begin_life()
    end
  end
  kept_text = nil -- until this step has ended well
end

local function write_head()
  local text = encode_head()
  call('SET', head_key, text)
  kept_head, kept_text, kept_key = head, text, head_key
end

-- What a call holds in its hands begins empty.
local resets = {}

local function begin(keys, given)
  if not call then
    borrow()
  end
  for _, reset in ipairs(resets) do
    reset()
  end
  args, words = unpack_one(given[1]), given
  head_key = keys[1]
  prefix = sub(head_key, 1, -5)
  read_head()
  if args.now then
    now = args.now -- a test moves the clock
  else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  latest_before = head.latest
  if now > head.latest then
    head.latest = now
  else
    now = head.latest
  end
  if head.lost_at and now > head.lost_at + head.longest then
    head.lost_at, head.missing = nil, nil
  end
end

-- Everything is checked before anything is written: a refusal leaves no trace.
local function refuse(kind, about)
  about = about or {}
  about.refusal = kind
  error(about, 0)
end

-- Bytes, not the server's locale: the same order as in every other store.
local function goes_first(a, b)
  if a == b then
    return false
  end
  local length = min(#a, #b)
  for place = 1, length do
    local x, y = a:byte(place), b:byte(place)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

local function sorted_keys(map)
  local names = {}
  for name in pairs(map) do
    names[#names + 1] = name
  end
  sort(names, goes_first)
  return names
end

-- An instant as the server reads it, without loss; the jobs of one step mostly share it.
local last_at, last_text

local function instant(at)
  if at ~= last_at then
    last_at, last_text = at, format('%.0f', at)
  end
  return last_text
end

-- Commands with many arguments, in pieces that the Lua stack can hold.
local function call_many(command, key, list, step)
  step = step or 1000
  if #list == 0 then
    return
  end
  for first = 1, #list, step do
    call(command, key, unpack(list, first, min(first + step - 1, #list)))
  end
end

local function read_many(command, key, list)
  if #list <= 1000 then
    return #list > 0 and call(command, key, unpack(list)) or {}
  end
  local found = {}
  for first = 1, #list, 1000 do
    local part = call(command, key, unpack(list, first, min(first + 999, #list)))
    for place = 1, #part do
      found[#found + 1] = part[place]
    end
  end
  return found
end

-- Definitions change rarely and are read in every step: what was decoded once is used again while its text is the same.
-- Whoever changes one forgets them all, and so does a step that fails. Many limits push no queue out.
local MOST_DECODED = 1000
local decoded

local function forget_decoded()
  decoded = { queue = { number = 0, by_key = {} }, limit = { number = 0, by_key = {} } }
end
forget_decoded()

local function decode_once(what, name, blob)
  local kept, key = decoded[what], prefix .. name
  local found = kept.by_key[key]
  if not found or found[1] ~= blob then
    if kept.number >= MOST_DECODED then
      kept.number, kept.by_key = 0, {}
    end
    found = { blob, unpack_one(blob) }
    kept.by_key[key], kept.number = found, kept.number + 1
  end
  return found[2]
end

-- What a step holds in its hands is written once, at its end.
local savers = {}

-- The parts of a step, each in a file of its own; they call one another.
local limits, meters, rows, lanes, turns, lines, runs, wakes = {}, {}, {}, {}, {}, {}, {}, {}
