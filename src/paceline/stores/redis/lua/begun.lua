-- Step 3, begun: handlers and permits began later than their stamps allow, so they count from there.
local function work()
  local lost = {}
  runs.load_held(args.leases)
  for _, lease in ipairs(args.leases) do
    local holder = runs.held(lease)
    if holder then
      runs.begin(holder, min(max(now - lease[3], holder.started_at or 0), now))
    else
      lost[#lost + 1] = lease[1]
    end
  end
  return { pack({ lost, head.charges }) }
end
step('begun', work)
