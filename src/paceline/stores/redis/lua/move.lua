-- All or none: every job is checked before the first one moves.
local constants = require('constants')
local manage = require('manage')
local records = require('records')
local rows = require('rows')
local step = require('step')
local SEP = constants.SEP
local allows, key_holder, move_one = manage.allows, manage.key_holder, manage.move_one
local refuse = step.refuse
local QUEUE, UNIQUE = records.QUEUE, records.UNIQUE

local function work()
  local found, seen = {}, {}
  rows.load(step.args.ids)
  for _, id in ipairs(step.args.ids) do
    if not seen[id] then
      seen[id] = true
      found[#found + 1] = rows.require(id)
    end
  end
  for _, row in ipairs(found) do
    if not allows(step.args.move, row) then
      refuse('move', { id = row.id, state = rows.seen(row) })
    end
  end
  local taken = {}
  for _, row in ipairs(step.args.move == 'retry' and found or {}) do
    local name = row.run[UNIQUE] and row.run[QUEUE] .. SEP .. row.run[UNIQUE]
    local holder = name and (taken[name] or key_holder(row))
    if holder then
      -- Another one has its unique key since, or takes it in the same move: it stays finished.
      refuse('move', { id = row.id, state = rows.seen(row), holder = holder })
    end
    if name then
      taken[name] = row.id
    end
  end
  for _, row in ipairs(found) do
    move_one(row, step.args.move)
  end
  return {}
end

return { work = work }
