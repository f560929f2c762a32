-- End permits, and the waits for them: their slots are free.
local function work()
  for _, id in ipairs(args.permits) do
    limits.drop_reservations(id)
    local permit = runs.permit(id)
    if permit then
      runs.end_permit(permit, true)
    end
  end
  return {}
end
step('give_back', work)
