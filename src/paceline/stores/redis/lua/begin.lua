-- What every step begins with: its arguments, the namespace's head, the time, and how it says no.
-- A server lends its functions to a step only while it runs, and looking for one costs as much as calling it.
local call, pack, unpack_one, to_bytes, from_bytes, format, sub
local ipairs, pairs, next, type, tonumber, tostring, unpack, error, pcall, floor, max, min, concat, sort

local function borrow()
  local lent = _G
  ipairs, pairs, next, type, tonumber = lent.ipairs, lent.pairs, lent.next, lent.type, lent.tonumber
  tostring, unpack, error, pcall = lent.tostring, lent.unpack, lent.error, lent.pcall
  floor, max, min, concat, sort = math.floor, math.max, math.min, table.concat, table.sort
  call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
  to_bytes, from_bytes, format, sub = struct.pack, struct.unpack, string.format, string.sub
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
    guard = NEVER,
    reserved = {}, -- keys whose room is kept for a big job, in order: {name, group}
    awaiting = {}, -- permits that room is kept for
  }
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
  head = call('GET', head_key)
  head = head and unpack_one(head) or new_head()
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
  for first = 1, #list, step do
    call(command, key, unpack(list, first, min(first + step - 1, #list)))
  end
end

local function read_many(command, key, list)
  local found = {}
  for first = 1, #list, 1000 do
    local part = call(command, key, unpack(list, first, min(first + 999, #list)))
    for place = 1, #part do
      found[#found + 1] = part[place]
    end
  end
  return found
end

-- What a script holds in its hands is written once, at its end.
local savers = {}

-- The parts of a step, each in a file of its own; they call one another.
local limits, meters, rows, lanes, lines, runs, wakes = {}, {}, {}, {}, {}, {}, {}
