-- name: queue
SELECT id, virtual_time, filings, counts, settings FROM paceline_queue WHERE space = ? AND name = ?

-- name: queue_name
SELECT name FROM paceline_queue WHERE id = ?

-- name: queue_names
SELECT name FROM paceline_queue WHERE space = ? ORDER BY id

-- name: create_queue
INSERT INTO paceline_queue VALUES (?, ?, ?, 0, 0, '{}', '{}')

-- name: save_queue
UPDATE paceline_queue SET virtual_time = ?, filings = ?, counts = ? WHERE id = ?

-- name: save_settings
UPDATE paceline_queue SET settings = ? WHERE id = ?

-- name: drop_queue
DELETE FROM paceline_queue WHERE id = ?

-- name: classes
SELECT id, tasks FROM paceline_class WHERE queue = ? ORDER BY id

-- name: save_class
INSERT INTO paceline_class VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET tasks = excluded.tasks

-- name: drop_class
DELETE FROM paceline_class WHERE id = ?

-- name: group
SELECT g.id, g.name, g.turn, g.filed, g.waiting, g.size, l.id, l.class, l.state, l.until, l.waiting
FROM paceline_group g LEFT JOIN paceline_lane l ON l.grp = g.id WHERE g.name = ? AND g.queue = ?

-- name: groups
SELECT g.id, g.name, g.turn, g.filed, g.waiting, g.size, l.id, l.class, l.state, l.until, l.waiting
FROM paceline_group g LEFT JOIN paceline_lane l ON l.grp = g.id WHERE g.id IN (SELECT value FROM json_each(?))

-- name: groups_named
SELECT g.id, g.name, g.turn, g.filed, g.waiting, g.size, l.id, l.class, l.state, l.until, l.waiting
FROM json_each(?) wanted CROSS JOIN paceline_group g ON g.name = wanted.value AND g.queue = ?
LEFT JOIN paceline_lane l ON l.grp = g.id

-- name: add_group
INSERT INTO paceline_group VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: save_group
UPDATE paceline_group SET turn = ?, filed = ?, waiting = ?, size = ? WHERE id = ?

-- name: drop_group
DELETE FROM paceline_group WHERE id = ?

-- name: groups_waiting
SELECT count(*) FROM paceline_group WHERE queue = ? AND waiting > 0

-- name: forget_groups
DELETE FROM paceline_group WHERE queue = ? AND size = 0 AND name <> '' AND turn <= ?

-- name: drop_groups
DELETE FROM paceline_group WHERE queue = ?

-- name: add_lane
INSERT INTO paceline_lane VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: save_lane
UPDATE paceline_lane SET state = ?, turn = ?, filed = ?, until = ?, waiting = ? WHERE id = ?

-- name: drop_lane
DELETE FROM paceline_lane WHERE id = ?

-- name: ready
SELECT id, turn, filed, grp FROM paceline_lane
WHERE class = ? AND state = 1 AND waiting > 0 AND (turn, filed) > (?, ?) ORDER BY turn, filed LIMIT ?

-- name: blocked
SELECT id, until, id, grp FROM paceline_lane
WHERE class = ? AND state = 2 AND waiting > 0 AND (until, id) > (?, ?) ORDER BY until, id LIMIT ?

-- name: shut
SELECT grp FROM paceline_lane WHERE class = :class AND state IN (2, 3) AND waiting > 0

-- name: of_groups
SELECT q.name, g.name FROM json_each(?) wanted CROSS JOIN paceline_group g ON g.name = wanted.value
CROSS JOIN paceline_queue q ON q.id = g.queue WHERE q.space = ?

-- name: heads
SELECT w.lane, j.* FROM json_each(?) wanted
JOIN paceline_wait w ON w.lane = wanted.value AND (w.priority, w.place) =
    (SELECT first.priority, first.place FROM paceline_wait first WHERE first.lane = wanted.value
     ORDER BY first.priority, first.place LIMIT 1)
JOIN paceline_jobs j ON j.n = w.n

-- name: waits
SELECT j.* FROM paceline_wait w JOIN paceline_jobs j ON j.n = w.n
WHERE w.lane = ? AND (w.priority, w.place) > (?, ?) ORDER BY w.priority, w.place LIMIT ?

-- name: ahead
SELECT count(*) FROM paceline_wait WHERE lane = ? AND (priority, place) < (?, ?)

-- name: save_wait
INSERT INTO paceline_wait VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = excluded.n

-- name: drop_wait
DELETE FROM paceline_wait WHERE lane = ? AND priority = ? AND place = ?

-- name: due_jobs
SELECT j.* FROM paceline_delayed d JOIN paceline_jobs j ON j.n = d.n
WHERE d.queue = ? AND d.due_at <= ? ORDER BY d.due_at, d.place LIMIT ?

-- name: next_due
SELECT j.* FROM paceline_delayed d JOIN paceline_jobs j ON j.n = d.n
WHERE d.queue = ? AND d.due_at > ? ORDER BY d.due_at, d.place LIMIT 1

-- name: due
SELECT count(*) FROM paceline_delayed WHERE queue = ? AND due_at <= ?

-- name: save_delayed
INSERT INTO paceline_delayed VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = excluded.n

-- name: drop_delayed
DELETE FROM paceline_delayed WHERE queue = ? AND due_at = ? AND place = ?

-- name: add_homes
INSERT INTO paceline_lane (id, class, grp, state, turn, filed, until, waiting)
SELECT :ids + row_number() OVER (), home, grp, CASE WHEN paused THEN 4 ELSE 1 END, turn, filed, 0, 0
FROM (SELECT DISTINCT new.value AS home, g.id AS grp, g.turn, g.filed,
             g.name IN (SELECT value FROM json_each(:paused)) AS paused
      FROM paceline_lane l CROSS JOIN paceline_group g ON g.id = l.grp CROSS JOIN paceline_wait w ON w.lane = l.id
      CROSS JOIN paceline_job j ON j.n = w.n CROSS JOIN json_each(:homes) new ON new.key = j.task
      WHERE l.class = :class)
WHERE true
ON CONFLICT (grp, class) DO UPDATE SET state = excluded.state, turn = excluded.turn, filed = excluded.filed

-- name: last_lane
SELECT max(id) FROM paceline_lane

-- name: move_waits
INSERT INTO paceline_wait
SELECT home.id, w.priority, w.place, w.n
FROM paceline_lane l CROSS JOIN paceline_wait w ON w.lane = l.id CROSS JOIN paceline_job j ON j.n = w.n
CROSS JOIN json_each(:homes) new ON new.key = j.task
CROSS JOIN paceline_lane home ON home.grp = l.grp AND home.class = new.value
WHERE l.class = :class

-- name: drop_waits
DELETE FROM paceline_wait WHERE lane IN (SELECT id FROM paceline_lane WHERE class = ?)

-- name: drop_lanes
DELETE FROM paceline_lane WHERE class = ?

-- name: count_lanes
UPDATE paceline_lane SET waiting = (SELECT count(*) FROM paceline_wait WHERE lane = paceline_lane.id) WHERE class = ?

-- name: count_class
SELECT coalesce(sum(waiting), 0) FROM paceline_lane WHERE class = ?
