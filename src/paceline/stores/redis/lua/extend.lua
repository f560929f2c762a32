-- Prolong leases and say that the worker lives. A lease is {id, fence}.
local function work()
  local known = call('HGET', prefix .. 'workers', args.worker)
  if known then
    local worker = unpack_one(known)
    worker.seen_at = now
    call('HSET', prefix .. 'workers', args.worker, pack(worker))
  end
  local ids, lost, cancel = {}, {}, {}
  for place, held in ipairs(args.leases) do
    ids[place] = held[1]
  end
  rows.load(ids)
  for _, held in ipairs(args.leases) do
    local id, fence = held[1], held[2]
    local row = rows.held[id]
    if row then
      if row.state ~= 3 or row.fence ~= fence then
        lost[#lost + 1] = id
      else
        row.lease_until, row.dirty = now + args.lease, true
        runs.add_lease(row.lease_until, runs.lease_name(fence, 'j', id))
        if row.cancel_asked then
          cancel[#cancel + 1] = id
        end
      end
    elseif fence == 0 and runs.permit(id) then
      runs.extend_permit(id, now + args.lease)
    else
      lost[#lost + 1] = id
    end
  end
  return { pack({ lost, cancel }) }
end
step('extend', work, true)
