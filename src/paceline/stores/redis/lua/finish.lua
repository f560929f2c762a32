-- Step 4, finish: end runs whose fence is still current.
local function work()
  return { pack(runs.finish(args.finishes)) }
end
step('finish', work)
