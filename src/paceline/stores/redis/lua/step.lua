-- How a step runs: do the work, write what changed, and answer; a refusal leaves no trace.
-- When memory is full workers must still start, claim and end jobs: that frees it. Only what adds jobs is refused.
local EVEN_WHEN_FULL, ONLY_WITH_ROOM = { 'allow-oom' }, {}

local function save_all()
  for _, save in ipairs(savers) do
    save()
  end
  write_head()
end

-- `looks`: the step changes nothing that a claim looks at, or says itself when it did.
local function step(name, work, looks, flags)
  local function callback(keys, given)
    begin(keys, given)
    if args.born and head.born and args.born ~= head.born then
      -- The caller knew a life whose data is gone: first it says again what it thinks is known here.
      write_head()
      return { 'refused', pack({ refusal = 'another life' }) }
    end
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
  redis.register_function({ function_name = LIBRARY .. '_' .. name, callback = callback, flags = flags or EVEN_WHEN_FULL })
end
