-- All parts and all steps; each is a file of its own. A chunk of Lua has room for 200 local names: parts that others
-- know by their table alone keep theirs to themselves.
-- include: begin
-- include: kinds
do
  -- include: memory
end
do
  -- include: meters
end
do
  -- include: limits
end
do
  -- include: reserving
end
do
  -- include: rows
end
-- include: lanes
do
  -- include: turns
end
do
  -- include: lines
end
do
  -- include: wakes
end
do
  -- include: runs
end
do
  -- include: permits
end
do
  -- include: late
end
-- include: choosing
-- include: manage
-- include: looking
-- include: step
do
  -- include: acquire
end
do
  -- include: begun
end
do
  -- include: claim
end
do
  -- include: counts
end
do
  -- include: drop_limit
end
do
  -- include: extend
end
do
  -- include: find
end
do
  -- include: finish
end
do
  -- include: finished
end
do
  -- include: gate
end
do
  -- include: get
end
do
  -- include: give_back
end
do
  -- include: hello
end
do
  -- include: hold
end
do
  -- include: insert
end
do
  -- include: move
end
do
  -- include: note
end
do
  -- include: obliterate
end
do
  -- include: override
end
do
  -- include: overrides
end
do
  -- include: pause
end
do
  -- include: prune
end
do
  -- include: queues
end
do
  -- include: register
end
do
  -- include: release
end
do
  -- include: set_limits
end
do
  -- include: sleep
end
do
  -- include: standing
end
do
  -- include: sweep
end
do
  -- include: usage
end
do
  -- include: wake
end
do
  -- include: watch
end
