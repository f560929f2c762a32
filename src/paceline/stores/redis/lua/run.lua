-- How a step runs: do the work, write what changed, and answer; a refusal leaves no trace.
local decoded = require('decoded')
local lanes = require('lanes')
local limits = require('limits')
local lines = require('lines')
local meters = require('meters')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local pack = cmsgpack.pack

local run = {}

local function save_all()
  meters.save()
  limits.save()
  rows.save()
  lanes.save()
  lines.save()
  wakes.send()
  runs.save()
  step.write_head()
end

local function refused(about)
  return { 'refused', pack(about) }
end

-- Run one step: `work` does it; `looks`: it changes nothing that a claim looks at, or says itself when it did.
function run.run(module, keys, given)
  step.begin(keys, given)
  local head = step.head
  if step.is_of_another_format() then
    return refused({ refusal = 'another format', format = head.format })
  end
  if step.args.born and head.born and step.args.born ~= head.born then
    -- The caller knew a life whose data is gone: first it says again what it thinks is known here.
    step.write_head()
    return refused({ refusal = 'another life' })
  end
  if step.now >= head.next_expiry then
    limits.expire()
    save_all()
  end
  if not module.looks then
    head.steps = head.steps + 1
  end
  local done, answer = pcall(module.work)
  if not done then
    decoded.forget_decoded()
    if type(answer) == 'table' and answer.refusal then
      return refused(answer)
    end
    error(answer, 0)
  end
  save_all()
  return answer
end

return run
