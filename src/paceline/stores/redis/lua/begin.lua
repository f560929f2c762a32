-- What every script begins with: its arguments, the namespace's head, the time, and how it says no.
local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
local floor, format = math.floor, string.format
local SEP = '\31' -- no name has control characters, so joined names stay apart
local NEVER = 4611686018427387904
local ONE = 65536 -- the turn of one start
local MAX_CRASHES = 3

local args = unpack_one(ARGV[1])
local prefix = string.sub(KEYS[1], 1, -5)
local head = call('GET', KEYS[1])
head = head and unpack_one(head)
  or {
    latest = 0, -- the store's time never goes back behind this
    orders = 0, -- jobs added so far
    fences = 0, -- starts so far
    epochs = 0, -- limits declared so far
    next_expiry = NEVER, -- when the first operator's word ends
    longest = 60000000, -- how far back a decision can look
    guard = NEVER,
    reserved = {}, -- keys whose room is kept for a big job, in order: {name, group}
    awaiting = {}, -- permits that room is kept for
  }

local now
if args.now then
  now = args.now -- a test moves the clock
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if now > head.latest then
  head.latest = now
else
  now = head.latest
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
  local length = math.min(#a, #b)
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
  table.sort(names, goes_first)
  return names
end

-- Commands with many arguments, in pieces that the Lua stack can hold.
local function call_many(command, key, list, step)
  step = step or 1000
  for first = 1, #list, step do
    call(command, key, unpack(list, first, math.min(first + step - 1, #list)))
  end
end

local function read_many(command, key, list)
  local found = {}
  for first = 1, #list, 1000 do
    local part = call(command, key, unpack(list, first, math.min(first + 999, #list)))
    for place = 1, #part do
      found[#found + 1] = part[place]
    end
  end
  return found
end

-- What a script holds in its hands is written once, at its end.
local savers = {}

-- The parts of a script, each in a file of its own; they call one another.
local limits, meters, rows, lanes, lines, runs, wakes = {}, {}, {}, {}, {}, {}, {}
