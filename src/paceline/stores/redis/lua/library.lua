-- All parts and all steps; each is a file of its own.
-- include: begin
-- include: kinds
-- include: meters
-- include: limits
-- include: rows
-- include: lanes
-- include: lines
-- include: wakes
-- include: runs
-- include: choosing
-- include: manage
-- include: looking
-- include: step
do
  -- include: acquire
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
