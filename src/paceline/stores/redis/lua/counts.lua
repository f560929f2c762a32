-- How many jobs of a queue are in each state.
local function work()
  if not lines.exists(args.queue) then
    return { pack({ 0, 0, 0, 0, 0, 0 }) }
  end
  return { pack(counts_of(lines.get(args.queue))) }
end
step('counts', work, true)
