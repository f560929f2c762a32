-- The step that runs now: its arguments, the namespace's head, the time, what it holds in its hands, and how it
-- refuses.
local constants = require('constants')
local records = require('records')
local call, unpack_one, floor, sub = redis.call, cmsgpack.unpack, math.floor, string.sub
local NEVER = constants.NEVER
local FORMAT = records.FORMAT
local MINUTE = 60000000

local step = require('step')

local function new_head()
  return {
    latest = 0, -- the store's time never goes back behind this
    orders = 0, -- jobs added so far
    fences = 0, -- starts so far
    epochs = 0, -- limits declared so far
    charges = 0, -- starts counted under keys so far
    next_expiry = NEVER, -- when the first operator's word ends
    longest = MINUTE, -- how far back a decision can look
    late = NEVER, -- for workers of earlier releases: no handler begins too late
    steps = 0, -- steps that may have changed what a claim gives
    pruned_steps = -1, -- the same when the last prune left nothing to do before `prune_due`
    prune_due = 0,
    reserved = {}, -- keys whose room is kept for a big job, in order: {name, group}
    awaiting = {}, -- permits that room is kept for
    format = FORMAT,
  }
end

-- The head is written by every step: the numbers that always change as a list, the rest only where there is any.
local function encode_head(head)
  local watched = head.watched_until and head.watched_until > step.now
  head.rest = nil
  if head.lost_at or head.woken or watched or #head.reserved > 0 or next(head.awaiting) then
    head.rest = {
      reserved = head.reserved,
      awaiting = head.awaiting,
      lost_at = head.lost_at,
      charges_then = head.charges_then,
      missing = head.missing,
      woken = head.woken,
      watched_until = head.watched_until,
    }
  end
  return records.encode_head(head)
end

local UNREADABLE = { latest = 0, longest = 0, next_expiry = NEVER, steps = 0, format = -1 }

local function decode_head(blob)
  local is_ours, head = pcall(records.decode_head, blob)
  if not is_ours or type(head.latest) ~= 'number' then
    return UNREADABLE
  end
  head.reserved, head.awaiting, head.format = {}, {}, head.format or FORMAT
  for name, value in pairs(head.rest or {}) do
    head[name] = value
  end
  return head
end

-- A namespace that knows nothing begins a life: its name is the instant, on a clock that no test moves. Fences count on
-- from there, so that one that was given out in a life before, and forgotten with it, proves nothing. (Tests that move
-- the clock compare fences with those of other stores.)
local function begin_life(head)
  local time = call('TIME')
  head.born = time[1] * 1000000 + time[2]
  head.fences = step.args.now and 0 or floor(head.born / 1000)
  return head
end

-- The head as the last step left it: as long as its text is the same it need not be read anew.
local kept_head, kept_text, kept_key

local function read_head()
  local text = call('GET', step.head_key)
  if text and text == kept_text and step.head_key == kept_key then
    step.head = kept_head
  else
    step.head = text and decode_head(text) or begin_life(new_head())
  end
  kept_text = nil -- until this step has ended well
end

function step.write_head()
  local text = encode_head(step.head)
  call('SET', step.head_key, text)
  kept_head, kept_text, kept_key = step.head, text, step.head_key
end

local function read_time(head)
  local now = step.args.now -- a test moves the clock
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  step.latest_before = head.latest
  if now > head.latest then
    head.latest = now
  end
  step.now = head.latest
  if head.lost_at and step.now > head.lost_at + head.longest then
    head.lost_at, head.missing = nil, nil
  end
end

-- What a step holds in its hands begins empty, and is written once, at its end.
local function empty_hands()
  step.number = (step.number or 0) + 1
  step.meters = {} -- by limit and group
  step.limits, step.written_limits, step.has_all_limits, step.scopes = {}, {}, false, nil
  step.rows, step.deleted_rows = {}, nil
  step.lines, step.plain_ends = {}, nil
  step.wakes = { queues = {}, empty = {}, words = {}, everybody = false, somebody_waits = nil }
  step.ends = {
    unlisted = {},
    ended = {},
    begun = {},
    kept = {},
    not_kept = {},
    failed = {},
  }
end

function step.begin(keys, given)
  empty_hands()
  step.args, step.words = unpack_one(given[1]), given
  step.head_key = keys[1]
  step.prefix = sub(step.head_key, 1, -5)
  read_head()
  read_time(step.head)
end

-- Everything is checked before anything is written: a refusal leaves no trace.
function step.refuse(kind, about)
  about = about or {}
  about.refusal = kind
  error(about, 0)
end

function step.is_of_another_format()
  return step.head.format ~= FORMAT
end

return step
