-- A page of jobs in the order they were added or backwards; a long search is cut into stretches.
local manage = require('manage')
local records = require('records')
local rows = require('rows')
local step = require('step')
local pack, abs = cmsgpack.pack, math.abs
local stretch = manage.stretch
local refuse = step.refuse
local QUEUE, TASK, GROUP = records.QUEUE, records.TASK, records.GROUP

local function work()
  local from, answer, found = step.args.from, { '' }, 0
  if step.args.after then
    local row = rows.find(step.args.after)
    if not row or row.run[QUEUE] ~= step.args.queue then
      refuse('no job', { id = step.args.after })
    end
    from = abs((rows.order_and_created(row)))
  end
  local searched, next_from = 0, from
  while next_from and found < step.args.limit and searched < step.args.most do
    local ids
    ids, next_from = stretch(step.args.queue, next_from, 200, step.args.newest_first)
    searched = searched + #ids
    for _, id in ipairs(ids) do
      local row = step.rows[id]
      if
        (not step.args.state or rows.seen(row) == step.args.state)
        and (not step.args.task or row.head[TASK] == step.args.task)
        and (not step.args.group or row.head[GROUP] == step.args.group)
      then
        rows.give(row, answer)
        found = found + 1
        if found == step.args.limit then
          break
        end
      end
    end
  end
  answer[1] = pack({ step.now, found < step.args.limit and next_from })
  return answer
end

return { work = work, reads = true }
