-- Somebody who sleeps looks whether those who were woken came; answers whether there is still somebody to wait for.
local wakes = require('wakes')
local pack = cmsgpack.pack

local function work()
  return { pack({ wakes.watch() }) }
end

return { work = work, looks = true }
