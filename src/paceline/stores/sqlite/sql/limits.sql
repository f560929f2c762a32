-- name: meter
SELECT id, revision, generation, kind, leases, cells, hold_until, hold_reason, held_at, refusals, awaited, reserved_by,
       reserved_until, reserved_deadline, reserved_place, open
FROM paceline_meter WHERE space = ? AND name = ? AND grp = ?

-- name: key
SELECT name, grp FROM paceline_meter WHERE id = ?

-- name: keys
SELECT name, grp FROM paceline_meter WHERE space = ? AND name = ? ORDER BY id

-- name: reserved
SELECT name, grp FROM paceline_meter WHERE space = ? AND reserved_by IS NOT NULL ORDER BY reserved_place

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
SELECT m.id, m.name, m.grp FROM paceline_meter m WHERE m.space = ? AND m.grp <> '' AND m.idle_from <= ? LIMIT ?
