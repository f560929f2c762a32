-- Definitions change rarely and are read in every step: what was decoded once is used again while its text is the same.
-- Whoever changes one forgets them all, and so does a step that fails. Many limits push no queue out.
local step = require('step')
local unpack_one = cmsgpack.unpack
local MOST_DECODED = 1000
local decoded

local function forget_decoded()
  decoded = { queue = { number = 0, by_key = {} }, limit = { number = 0, by_key = {} } }
end
forget_decoded()

local function decode_once(what, name, blob)
  local kept, key = decoded[what], step.prefix .. name
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

return { decode_once = decode_once, forget_decoded = forget_decoded }
