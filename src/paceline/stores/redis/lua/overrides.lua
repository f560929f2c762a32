-- All limits in the order they were declared, with what operators said.
local function work()
  return { pack(limits.in_order()) }
end
step('overrides', work, true)
