-- Names in the order of their bytes, whatever the server's locale is: the same order as in every other store.
local min, sort = math.min, table.sort
local order = {}

function order.goes_first(a, b)
  if a == b then
    return false
  end
  local length = min(#a, #b)
  for place = 1, length do
    local x, y = a:byte(place), b:byte(place)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

function order.sorted_keys(map)
  local names = {}
  for name in pairs(map) do
    names[#names + 1] = name
  end
  sort(names, order.goes_first)
  return names
end

return order
