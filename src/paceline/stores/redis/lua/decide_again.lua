-- Between claim and handler: starts whose handlers would begin too late are decided again, one after the other.
-- Admitted ones are open until they begin, the others go back to their places.
local late = require('late')
local records = require('records')
local step = require('step')
local pack = cmsgpack.pack
local FENCE, GATE = records.FENCE, records.GATE

local function work()
  local refused, lost = {}, {}
  late.load_held(step.args.leases)
  for _, lease in ipairs(step.args.leases) do
    local row = late.held(lease)
    if not row or not row.run[FENCE] then
      lost[#lost + 1] = lease[1]
    elseif not row.run[GATE] and not late.open_again(row) then
      refused[#refused + 1] = row.id
      late.hand_back(row)
    end
  end
  return { pack({ refused, lost, step.head.charges }) }
end

return { work = work }
