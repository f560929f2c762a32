-- Declare limits for everybody, at once.
local function work()
  local changed, widened = limits.declare(args.again and limits.forgotten(args.limits) or args.limits)
  if widened then
    lines.reclassify_all()
  end
  for _, change in ipairs(changed) do
    limits.opened(change.new.name)
  end
  return { pack({ changed, now }) }
end
step('set_limits', work)
