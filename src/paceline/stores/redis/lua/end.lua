-- What every script ends with: do the work, write what changed, and answer; a refusal leaves no trace.
local function save_all()
  for _, save in ipairs(savers) do
    save()
  end
  call('SET', KEYS[1], pack(head))
end

if now >= head.next_expiry then
  limits.expire()
  save_all()
end
local done, answer = pcall(work)
if not done then
  if type(answer) == 'table' and answer.refusal then
    return { 'refused', pack(answer) }
  end
  error(answer, 0)
end
save_all()
return answer
