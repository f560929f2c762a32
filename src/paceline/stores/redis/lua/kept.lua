-- What a step wrote, as it held it in its hands: the next one need not make it again while its text is the same.
local MOST_KEPT = 10000

local kept = {}

local by_key, number = {}, 0

-- A step did not end well, or changed what it held without writing it.
function kept.forget()
  by_key, number = {}, 0
end

function kept.find(key, field, text)
  local fields = by_key[key]
  local found = fields and fields[field]
  return found and found.text == text and found.value or nil
end

function kept.keep(key, field, text, value)
  local fields = by_key[key]
  if not fields then
    fields = {}
    by_key[key] = fields
  end
  local found = fields[field]
  if found then
    found.text, found.value = text, value
    return
  end
  number = number + 1
  if number > MOST_KEPT then
    kept.forget()
    by_key[key], number = { [field] = { text = text, value = value } }, 1
    return
  end
  fields[field] = { text = text, value = value }
end

return kept
