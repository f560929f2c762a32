-- One stretch of a queue: move or remove the jobs in one state. Returns how many, and where to go on.
local lines = require('lines')
local manage = require('manage')
local records = require('records')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local pack = cmsgpack.pack
local key_holder, move_one, stretch = manage.key_holder, manage.move_one, manage.stretch
local STATE, DUE_AT, FINISHED_AT = records.STATE, records.DUE_AT, records.FINISHED_AT

local function since(row)
  if row.run[FINISHED_AT] then
    return row.run[FINISHED_AT]
  end
  local _, created_at = rows.order_and_created(row)
  return row.run[DUE_AT] > step.now and created_at or row.run[DUE_AT]
end

local function is_wanted(row)
  if step.args.how == 'drain' then
    return row.run[STATE] == 1
  end
  return rows.seen(row) == step.args.state and (step.args.how == 'move' or step.now - since(row) > step.args.older_than)
end

local function work()
  if not lines.exists(step.args.queue) then
    return { pack({ 0, false }) }
  end
  local ids, next_from = stretch(step.args.queue, step.args.from, step.args.most)
  local line, number = lines.get(step.args.queue), 0
  for _, id in ipairs(ids) do
    local row = step.rows[id]
    if is_wanted(row) and not (step.args.move == 'retry' and key_holder(row)) then
      number = number + 1
      if step.args.how == 'move' then
        move_one(row, step.args.move)
      else
        runs.remove(line, row)
      end
    end
  end
  if step.args.how == 'drain' then
    wakes.queue(step.args.queue)
  end
  return { pack({ number, next_from }) }
end

return { work = work }
