-- The job once it is in a final state; until then the one who asks is told when it ends.
local function work()
  local row = rows.require(args.id)
  local answer = { pack({ now }) }
  if row.state >= 4 then
    rows.give(row, answer)
  else
    wakes.wait_for(args.id, args.waker)
  end
  return answer
end
step('finished', work, true)
