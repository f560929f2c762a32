-- Forget a limit: the jobs that met it go on without it.
local function work()
  local dropped = limits.drop(args.name)
  if dropped then
    lines.reclassify_all()
  end
  return { pack(dropped) }
end
step('drop_limit', work)
