-- name: meter
SELECT m.id, m.revision, m.generation, m.kind, m.leases, m.cells, m.hold_until, m.hold_reason, m.held_at, m.refusals,
       m.awaited, m.reserved_by, m.reserved_until, m.reserved_deadline, m.reserved_place, m.open, m.name, m.grp
FROM paceline_meter m WHERE m.space = ? AND m.name = ? AND m.grp = ?

-- name: meters
SELECT m.id, m.revision, m.generation, m.kind, m.leases, m.cells, m.hold_until, m.hold_reason, m.held_at, m.refusals,
       m.awaited, m.reserved_by, m.reserved_until, m.reserved_deadline, m.reserved_place, m.open, m.name, m.grp
FROM json_each(?) wanted CROSS JOIN paceline_meter m
  ON m.space = ? AND m.name = json_extract(wanted.value, '$[0]') AND m.grp = json_extract(wanted.value, '$[1]')

-- name: by_numbers
SELECT m.id, m.revision, m.generation, m.kind, m.leases, m.cells, m.hold_until, m.hold_reason, m.held_at, m.refusals,
       m.awaited, m.reserved_by, m.reserved_until, m.reserved_deadline, m.reserved_place, m.open, m.name, m.grp
FROM paceline_meter m WHERE m.id IN (SELECT value FROM json_each(?))

-- name: of_limit
SELECT m.id, m.revision, m.generation, m.kind, m.leases, m.cells, m.hold_until, m.hold_reason, m.held_at, m.refusals,
       m.awaited, m.reserved_by, m.reserved_until, m.reserved_deadline, m.reserved_place, m.open, m.name, m.grp
FROM paceline_meter m WHERE m.space = ? AND m.name = ? ORDER BY m.id

-- name: reserved
SELECT m.id, m.revision, m.generation, m.kind, m.leases, m.cells, m.hold_until, m.hold_reason, m.held_at, m.refusals,
       m.awaited, m.reserved_by, m.reserved_until, m.reserved_deadline, m.reserved_place, m.open, m.name, m.grp
FROM paceline_meter m WHERE m.space = ? AND m.reserved_by IS NOT NULL ORDER BY m.reserved_place

-- name: save
INSERT INTO paceline_meter VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    revision = excluded.revision, generation = excluded.generation, leases = excluded.leases, kind = excluded.kind, cells = excluded.cells,
    hold_until = excluded.hold_until, hold_reason = excluded.hold_reason, held_at = excluded.held_at,
    refusals = excluded.refusals, awaited = excluded.awaited, reserved_by = excluded.reserved_by,
    reserved_until = excluded.reserved_until, reserved_deadline = excluded.reserved_deadline,
    reserved_place = excluded.reserved_place, idle_from = excluded.idle_from, open = excluded.open

-- name: save_counted
UPDATE paceline_meter SET revision = ?, leases = ?, cells = ?, idle_from = ? WHERE id = ?

-- name: spent
SELECT at, total FROM paceline_spent WHERE meter = ? AND part = ? AND at >= ? ORDER BY at

-- name: spent_by
SELECT s.meter, s.part, s.at, s.total FROM json_each(?) wanted CROSS JOIN paceline_spent s
  ON s.meter = json_extract(wanted.value, '$[0]') AND s.part = json_extract(wanted.value, '$[1]')
 AND s.at >= json_extract(wanted.value, '$[2]')
ORDER BY wanted.key, s.at

-- name: save_spent
INSERT INTO paceline_spent VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET total = excluded.total

-- name: fold_spent
DELETE FROM paceline_spent WHERE meter = ? AND part = ? AND at <= ?

-- name: drop_spent
DELETE FROM paceline_spent WHERE meter = ?

-- name: drop
DELETE FROM paceline_meter WHERE id = ?

-- name: drop_all
DELETE FROM paceline_meter WHERE space = ? AND name = ?

-- name: drop_all_spent
DELETE FROM paceline_spent WHERE meter IN (SELECT id FROM paceline_meter WHERE space = ? AND name = ?)

-- name: idle
SELECT m.id FROM paceline_meter m WHERE m.space = :space AND m.grp <> '' AND m.idle_from <= :now AND m.open = 0
  AND NOT EXISTS (SELECT 1 FROM paceline_group g CROSS JOIN paceline_lane l ON l.grp = g.id WHERE g.name = m.grp)
LIMIT :most
