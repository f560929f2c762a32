-- The modules of stores/redis/lua: Lua 5.1 with what a Redis server lends to a function.
std = 'lua51'
read_globals = { 'redis', 'cmsgpack', 'struct' }
max_line_length = 120
