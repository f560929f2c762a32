-- name: find
SELECT s.id, s.version, s.rules_version, s.listeners_version, s.notified, s.latest, s.orders, s.fences,
       s.waiting_permits, f.ids, f.version
FROM paceline_space s, paceline_file f WHERE s.name = ?

-- name: create
INSERT INTO paceline_space (name) VALUES (?) ON CONFLICT DO NOTHING

-- name: save
UPDATE paceline_space SET version = ?, rules_version = ?, listeners_version = ?, notified = ?, latest = ?, orders = ?, fences = ?,
       waiting_permits = ?
WHERE id = ?

-- name: save_numbers
UPDATE paceline_file SET ids = ?

-- name: rules
SELECT document FROM paceline_rules WHERE space = ?

-- name: save_rules
INSERT INTO paceline_rules VALUES (?, ?) ON CONFLICT DO UPDATE SET document = excluded.document

-- name: notified
SELECT notified, EXISTS (SELECT 1 FROM paceline_listener WHERE address = ?) FROM paceline_space WHERE id = ?

-- name: listeners
SELECT address, waits FROM paceline_listener WHERE space = ?

-- name: add_listener
INSERT INTO paceline_listener VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET waits = max(waits, excluded.waits)

-- name: drop_listener
DELETE FROM paceline_listener WHERE address = ?

-- name: workers
SELECT record FROM paceline_worker WHERE space = ?

-- name: worker
SELECT record FROM paceline_worker WHERE space = ? AND id = ?

-- name: save_worker
INSERT INTO paceline_worker VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET record = excluded.record

-- name: drop_worker
DELETE FROM paceline_worker WHERE space = ? AND id = ?

-- name: claimed
SELECT claim, jobs FROM paceline_claimed WHERE space = ? AND worker = ?

-- name: save_claimed
INSERT INTO paceline_claimed VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET claim = excluded.claim, jobs = excluded.jobs

-- name: drop_claimed
DELETE FROM paceline_claimed WHERE space = ? AND worker = ?

-- name: start_folding
UPDATE paceline_file SET folding_until = ? WHERE folding_until < ?
