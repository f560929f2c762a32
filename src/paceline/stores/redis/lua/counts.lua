-- How many jobs of a queue are in each state.
local function work()
  if not lines.exists(args.queue) then
    return { pack({ 0, 0, 0, 0, 0, 0 }) }
  end
  local counts = lines.get(args.queue).counts
  local due = call('ZCOUNT', prefix .. 'delayed' .. SEP .. args.queue, '-inf', format('%.0f', now))
  return { pack({ counts[1] + due, counts[2] - due, counts[3], counts[4], counts[5], counts[6] }) }
end
step('counts', work, EVEN_WHEN_FULL)
