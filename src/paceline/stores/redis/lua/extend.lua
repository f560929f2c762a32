-- Prolong leases and say that the worker lives. A lease is {id, fence}.
local permits = require('permits')
local records = require('records')
local rows = require('rows')
local runs = require('runs')
local step = require('step')
local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
local STATE, FENCE, CANCEL_ASKED = records.STATE, records.FENCE, records.CANCEL_ASKED
local LEASE_UNTIL = records.LEASE_UNTIL

local function work()
  local known = call('HGET', step.prefix .. 'workers', step.args.worker)
  if known then
    local worker = unpack_one(known)
    worker.seen_at = step.now
    call('HSET', step.prefix .. 'workers', step.args.worker, pack(worker))
  end
  local ids, lost, cancel = {}, {}, {}
  for place, held in ipairs(step.args.leases) do
    ids[place] = held[1]
  end
  rows.load(ids)
  for _, held in ipairs(step.args.leases) do
    local id, fence = held[1], held[2]
    local row = step.rows[id]
    if row then
      if row.run[STATE] ~= 3 or row.run[FENCE] ~= fence then
        lost[#lost + 1] = id
      else
        row.run[LEASE_UNTIL], row.dirty = step.now + step.args.lease, true
        runs.add_lease(row.run[LEASE_UNTIL], runs.lease_name(fence, 'j', id))
        if row.run[CANCEL_ASKED] then
          cancel[#cancel + 1] = id
        end
      end
    elseif fence == 0 and permits.permit(id) then
      permits.extend_permit(id, step.now + step.args.lease)
    else
      lost[#lost + 1] = id
    end
  end
  return { pack({ lost, cancel }) }
end

return { work = work, looks = true }
