-- Between claim and handler: starts whose handlers would begin too late are decided again, one after the other. Admitted
-- ones are open until they begin, the others go back to their places.
local function work()
  local refused, lost = {}, {}
  runs.load_held(args.leases)
  for _, lease in ipairs(args.leases) do
    local row = runs.held(lease)
    if not row or not row.fence then
      lost[#lost + 1] = lease[1]
    elseif row.gate == 0 and not runs.open_again(row) then
      refused[#refused + 1] = row.id
      runs.hand_back(row)
    end
  end
  return { pack({ refused, lost, head.charges }) }
end
step('decide_again', work)
