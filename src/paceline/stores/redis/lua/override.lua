-- Set an operator's numbers, or take them back; they win until lifted or over.
local function work()
  local limit = limits.require(args.name)
  if args.lift then
    if limits.lift(args.name, args.group) then
      limits.opened(args.name)
    end
    return {}
  end
  if args.group and limit.by ~= 'group' then
    refuse('not per group')
  end
  local said = args.said
  if args.length then
    said.expires_at = now + args.length
  end
  limits.override(args.name, args.group, said)
  limits.opened(args.name)
  return {}
end
step('override', work)
