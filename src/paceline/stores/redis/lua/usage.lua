-- How full a key is; a per-group limit without a group is asked about a group nobody has used.
local function work()
  local limit = limits.require(args.name)
  if limit.by == 'group' and not args.group then
    return { pack(usage_of(meters.fresh(args.name, nil), 1, waiting_under(args.name, nil))) }
  end
  local meter = limits.require_key(args.name, args.group)
  return { pack(usage_of(meter, 1, waiting_under(args.name, args.group))) }
end
step('usage', work, true)
