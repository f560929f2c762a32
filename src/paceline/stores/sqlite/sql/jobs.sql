-- name: by_id
SELECT v.* FROM paceline_job j JOIN paceline_jobs v ON v.n = j.n WHERE j.id = ? AND j.space = ?

-- name: by_ids
SELECT v.* FROM json_each(?) wanted JOIN paceline_job j ON j.id = wanted.value AND j.space = ?
JOIN paceline_jobs v ON v.n = j.n

-- name: by_numbers
SELECT * FROM paceline_jobs WHERE n IN (SELECT value FROM json_each(?)) ORDER BY n

-- name: insert
INSERT INTO paceline_job VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: begin_life
INSERT INTO paceline_life (n, space, state, attempts_made, started_at, fence, worker, lease_until, keys)
VALUES (?, ?, 'active', 1, ?, ?, ?, ?, ?)

-- name: complete_life
UPDATE paceline_life SET state = 'completed', finished_at = ?, result = ?, error = NULL, worker = NULL, keys = NULL,
       expires_at = ?
WHERE n = ?

-- name: save_life
INSERT INTO paceline_life VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (n) DO UPDATE SET
    state = excluded.state, attempts_made = excluded.attempts_made, due_at = excluded.due_at,
    started_at = excluded.started_at, finished_at = excluded.finished_at, result = excluded.result,
    error = excluded.error, fence = excluded.fence, worker = excluded.worker, lease_until = excluded.lease_until,
    keys = excluded.keys, more = excluded.more, expires_at = excluded.expires_at

-- name: delete_job
DELETE FROM paceline_job WHERE n = ?

-- name: delete_life
DELETE FROM paceline_life WHERE n = ?

-- name: unique
SELECT n FROM paceline_unique WHERE queue = ? AND key = ?

-- name: save_unique
INSERT INTO paceline_unique VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = excluded.n

-- name: drop_unique
DELETE FROM paceline_unique WHERE queue = ? AND key = ?

-- name: in_queue
SELECT n FROM paceline_job WHERE n >= :first AND n < :end ORDER BY n

-- name: in_state
SELECT n FROM paceline_life WHERE n >= :first AND n < :end AND +state = :state ORDER BY n

-- name: failed_or_cancelled
SELECT n FROM paceline_life
WHERE state = :state AND state IN ('failed', 'cancelled') AND n >= :first AND n < :end ORDER BY n

-- name: active
SELECT n FROM paceline_life WHERE space = :space AND state = 'active' AND n >= :first AND n < :end ORDER BY n

-- name: in_lanes
SELECT w.n FROM paceline_class c CROSS JOIN paceline_lane l ON l.class = c.id CROSS JOIN paceline_wait w ON w.lane = l.id
WHERE c.queue = ?
UNION ALL
SELECT n FROM paceline_delayed WHERE queue = ? AND due_at <= ?
ORDER BY 1

-- name: delayed
SELECT n FROM paceline_delayed WHERE queue = ? AND due_at > ? ORDER BY n

-- name: page
SELECT n FROM paceline_jobs
WHERE n > :low AND n < :high AND (:task IS NULL OR task = :task) AND (:grp IS NULL OR grp = :grp)
  AND CASE :state
      WHEN '' THEN 1
      WHEN 'waiting' THEN coalesce(state, 'waiting') IN ('waiting', 'delayed') AND coalesce(due_at, first_due_at) <= :now
      WHEN 'delayed' THEN coalesce(state, 'waiting') IN ('waiting', 'delayed') AND coalesce(due_at, first_due_at) > :now
      ELSE state = :state END
ORDER BY n LIMIT :most

-- name: page_failed
SELECT j.n FROM paceline_life l JOIN paceline_job j ON j.n = l.n
WHERE l.state = :state AND l.state IN ('failed', 'cancelled') AND l.n > :low AND l.n < :high
  AND (:task IS NULL OR j.task = :task) AND (:grp IS NULL OR j.grp = :grp)
ORDER BY l.n LIMIT :most

-- name: page_active
SELECT j.n FROM paceline_life l JOIN paceline_job j ON j.n = l.n
WHERE l.space = :space AND l.state = 'active' AND l.n > :low AND l.n < :high
  AND (:task IS NULL OR j.task = :task) AND (:grp IS NULL OR j.grp = :grp)
ORDER BY l.n LIMIT :most

-- name: kept_too_long
SELECT n FROM paceline_life WHERE space = ? AND expires_at < ? ORDER BY expires_at LIMIT ?

-- name: leases
SELECT n, lease_until FROM paceline_life WHERE space = ? AND state = 'active' ORDER BY lease_until, fence LIMIT ?

-- name: permit_leases
SELECT id, lease_until FROM paceline_permit WHERE space = ? ORDER BY lease_until LIMIT ?

-- name: permit
SELECT keys, started_at, lease_until, gate FROM paceline_permit WHERE space = ? AND id = ?

-- name: save_permit
INSERT INTO paceline_permit VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    keys = excluded.keys, started_at = excluded.started_at, lease_until = excluded.lease_until, gate = excluded.gate

-- name: drop_permit
DELETE FROM paceline_permit WHERE space = ? AND id = ?

-- name: log_start
INSERT INTO paceline_start VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET at = excluded.at

-- name: start
SELECT job, at, task, grp, cost FROM paceline_start WHERE queue = ? AND fence = ?

-- name: starts
SELECT job, at, task, grp, cost FROM paceline_start WHERE queue = ? ORDER BY at, fence

-- name: starts_since
SELECT job, at, task, grp, cost FROM paceline_start WHERE queue = ? AND at >= ? ORDER BY at, fence

-- name: drop_start
DELETE FROM paceline_start WHERE queue = ? AND fence = ?

-- name: forget_starts
DELETE FROM paceline_start WHERE queue = :queue AND at < :before AND fence <=
    (SELECT fence FROM paceline_start WHERE queue = :queue ORDER BY fence DESC LIMIT 1 OFFSET :keep)

-- name: drop_starts
DELETE FROM paceline_start WHERE queue = ?
