-- Lift the hold of a key, or of all keys of a limit; or forget the starts of a key too.
local function work()
  if args.clear then
    local meter = limits.require_key(args.name, args.group)
    meters.forget_starts(meter)
    meters.release(meter)
    limits.opened(args.name, args.group)
    return {}
  end
  local limit = limits.require(args.name)
  if not args.group then
    limits.release_all(limit)
  end
  for _, meter in ipairs(meters.of(args.name)) do
    if not args.group or meter.group == args.group then
      meters.release(meter)
    end
  end
  limits.opened(args.name, args.group)
  return {}
end
step('release', work)
