-- How a step runs: do the work, write what changed, and answer; a refusal leaves no trace.
local complete = require('complete')
local decoded = require('decoded')
local filing = require('filing')
local kept = require('kept')
local limits = require('limits')
local lines = require('lines')
local meters = require('meters')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local wakes = require('wakes')
local pack = cmsgpack.pack

local run = {}

local ended_well = false -- the step before

local function save_all()
  meters.save()
  limits.save()
  rows.save()
  filing.save()
  lines.save()
  wakes.send()
  complete.save()
  runs.save()
  step.write_head()
end

local function refused(about)
  return { 'refused', pack(about) }
end

local function answer_of(module)
  local done, answer = pcall(module.work)
  if done then
    return answer
  end
  decoded.forget_decoded()
  if type(answer) == 'table' and answer.refusal then
    return nil, refused(answer)
  end
  error(answer, 0)
end

-- A step that writes nothing. What it made up on the way (the class of a task that nobody used) is forgotten.
local function read(module)
  if step.now >= step.head.next_expiry and not step.args.stale then
    return refused({ refusal = 'an override ended' })
  end
  local answer, refusal = answer_of(module)
  for _, line in pairs(step.lines) do
    if line and line.redefined then
      decoded.forget_decoded()
    end
  end
  ended_well = next(step.meters) == nil
  return answer or refusal
end

-- Run one step: `work` does it; `looks`: it changes nothing that a claim looks at, or says itself when it did.
function run.run(module, keys, given)
  if not ended_well then
    kept.forget()
  end
  ended_well = false
  step.begin(keys, given)
  local head = step.head
  if step.is_of_another_format() then
    return refused({ refusal = 'another format', format = head.format })
  end
  if step.args.born and head.born and step.args.born ~= head.born then
    -- The caller knew a life whose data is gone: first it says again what it thinks is known here.
    if not module.reads then
      step.write_head()
    end
    return refused({ refusal = 'another life' })
  end
  if module.reads then
    return read(module)
  end
  if step.now >= head.next_expiry then
    limits.expire()
    save_all()
  end
  if not module.looks then
    head.steps = head.steps + 1
  end
  local answer, refusal = answer_of(module)
  if refusal then
    return refusal
  end
  save_all()
  ended_well = true
  return answer
end

return run
