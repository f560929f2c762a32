-- Commands with many arguments, in pieces that the Lua stack can hold.
local call, format, min = redis.call, string.format, math.min
local commands = {}

-- An instant as the server reads it, without loss; the jobs of one step mostly share it.
local last_at, last_text

function commands.instant(at)
  if at ~= last_at then
    last_at, last_text = at, format('%.0f', at)
  end
  return last_text
end

function commands.call_many(command, key, list)
  if #list == 0 then
    return
  end
  for first = 1, #list, 1000 do
    call(command, key, unpack(list, first, min(first + 999, #list)))
  end
end

function commands.read_many(command, key, list)
  if #list <= 1000 then
    return #list > 0 and call(command, key, unpack(list)) or {}
  end
  local found = {}
  for first = 1, #list, 1000 do
    local part = call(command, key, unpack(list, first, min(first + 999, #list)))
    for place = 1, #part do
      found[#found + 1] = part[place]
    end
  end
  return found
end

return commands
