-- How a step runs: do the work, write what changed, and answer; a refusal leaves no trace.
local EVEN_WHEN_FULL = { 'allow-oom' } -- ends of jobs must go through when memory is full: they free it

local function save_all()
  for _, save in ipairs(savers) do
    save()
  end
  write_head()
end

-- `looks`: the step changes nothing that a claim looks at, or says itself when it did.
local function step(name, work, flags, looks)
  local function callback(keys, given)
    begin(keys, given)
    if now >= head.next_expiry then
      limits.expire()
      save_all()
    end
    if not looks then
      head.steps = head.steps + 1
    end
    local done, answer = pcall(work)
    if not done then
      forget_decoded()
      if type(answer) == 'table' and answer.refusal then
        return { 'refused', pack(answer) }
      end
      error(answer, 0)
    end
    save_all()
    return answer
  end
  redis.register_function({ function_name = LIBRARY .. '_' .. name, callback = callback, flags = flags or {} })
end
