-- Somebody who sleeps looks whether those who were woken came; answers whether there is still somebody to wait for.
local function work()
  return { pack({ wakes.watch() }) }
end
step('watch', work, true)
