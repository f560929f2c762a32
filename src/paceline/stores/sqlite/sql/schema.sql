-- Version 4. Everything is prefixed: the file may be a database of your own, so that jobs and rows commit together.

CREATE TABLE paceline_file (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    boot TEXT NOT NULL,              -- the start of the machine that the clock below belongs to
    clock INTEGER NOT NULL,          -- microseconds to add to that machine's clock to get the store's time
    ids INTEGER NOT NULL DEFAULT 0,  -- numbers given to queues, classes, groups, lanes and meters
    folding_until INTEGER NOT NULL DEFAULT 0 -- somebody folds the write-ahead log into the file
) STRICT;

-- One row per namespace. `version` grows with every change: what a process remembers from before is old then.
CREATE TABLE paceline_space (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL DEFAULT 0,
    rules_version INTEGER NOT NULL DEFAULT 0,
    listeners_version INTEGER NOT NULL DEFAULT 0,
    notified INTEGER NOT NULL DEFAULT 0, -- grows with every change that a sleeper may wait for
    latest INTEGER NOT NULL DEFAULT 0,  -- the store's time at the last change
    orders INTEGER NOT NULL DEFAULT 0,
    fences INTEGER NOT NULL DEFAULT 0,
    waiting_permits TEXT NOT NULL DEFAULT '[]'
) STRICT;

-- Limits, operators' overrides and holds of whole limits: read again only when rules_version changes.
CREATE TABLE paceline_rules (space INTEGER PRIMARY KEY, document TEXT NOT NULL) STRICT;

-- What was asked for: written once. Its number is that of its queue, times 2^40, plus its place in the order of adding.
CREATE TABLE paceline_job (
    n INTEGER PRIMARY KEY,
    space INTEGER NOT NULL,
    id TEXT NOT NULL,
    task TEXT NOT NULL,
    grp TEXT,
    data BLOB NOT NULL,
    priority INTEGER NOT NULL,
    place INTEGER NOT NULL,          -- negative for LIFO
    options BLOB,                    -- attempts, backoff, timeout, cost, keep, unique key; NULL: the defaults
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX paceline_job_id ON paceline_job (id, space);

-- What happened to it: nothing yet for a job that was never started.
CREATE TABLE paceline_life (
    n INTEGER PRIMARY KEY,
    space INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts_made INTEGER NOT NULL,
    due_at INTEGER,                  -- NULL: as it was asked for
    started_at INTEGER,
    finished_at INTEGER,
    result BLOB,
    error TEXT,
    fence INTEGER NOT NULL,
    worker TEXT,
    lease_until INTEGER NOT NULL,
    keys TEXT,                       -- JSON: the meters it is charged to, with what it took
    more BLOB,                       -- crashes, returns, progress, message, logs, a cancel; NULL: nothing of it
    expires_at INTEGER
) STRICT;
CREATE INDEX paceline_life_lease ON paceline_life (space, lease_until, fence) WHERE state = 'active';
CREATE INDEX paceline_life_failed ON paceline_life (state) WHERE state IN ('failed', 'cancelled');
CREATE INDEX paceline_life_expires ON paceline_life (space, expires_at) WHERE expires_at IS NOT NULL;

CREATE VIEW paceline_jobs AS
SELECT j.n, j.id, j.task, j.data, j.grp, j.priority, j.place, j.options, j.created_at,
       j.due_at AS first_due_at, l.state, l.attempts_made, l.due_at, l.started_at, l.finished_at, l.result, l.error,
       l.fence, l.worker, l.lease_until, l.keys, l.more
FROM paceline_job j LEFT JOIN paceline_life l ON l.n = j.n;

-- Unique keys of jobs that have not finished.
CREATE TABLE paceline_unique (
    queue INTEGER NOT NULL, key TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE paceline_queue (
    id INTEGER PRIMARY KEY,
    space INTEGER NOT NULL,
    name TEXT NOT NULL,
    virtual_time INTEGER NOT NULL,
    filings INTEGER NOT NULL,
    counts TEXT NOT NULL,            -- JSON: jobs in each state, and waiting jobs of each class
    settings TEXT NOT NULL,          -- JSON: pauses, and the sets of tasks that workers know
    UNIQUE (space, name)
) STRICT;

-- The tasks of a queue that are open or closed together.
CREATE TABLE paceline_class (
    id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, tasks TEXT NOT NULL
) STRICT;
CREATE INDEX paceline_class_queue ON paceline_class (queue);

-- A tenant in one queue ('' stands for jobs without a group): its turn, and how many of its jobs have not started.
CREATE TABLE paceline_group (
    id INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    turn INTEGER NOT NULL,
    filed INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    size INTEGER NOT NULL,
    UNIQUE (name, queue)
) STRICT;

-- The waiting jobs of one class and group; state: 1 ready, 2 blocked until, 3 parked, 4 paused.
CREATE TABLE paceline_lane (
    id INTEGER PRIMARY KEY,
    class INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    state INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    filed INTEGER NOT NULL,
    until INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    UNIQUE (grp, class)
) STRICT;
CREATE INDEX paceline_lane_ready ON paceline_lane (class, turn, filed) WHERE state = 1 AND waiting > 0;
CREATE INDEX paceline_lane_blocked ON paceline_lane (class, until, id) WHERE state = 2 AND waiting > 0;
CREATE INDEX paceline_lane_class ON paceline_lane (class);

CREATE TABLE paceline_wait (
    lane INTEGER NOT NULL, priority INTEGER NOT NULL, place INTEGER NOT NULL, n INTEGER NOT NULL,
    PRIMARY KEY (lane, priority, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE paceline_delayed (
    queue INTEGER NOT NULL, due_at INTEGER NOT NULL, place INTEGER NOT NULL, n INTEGER NOT NULL,
    PRIMARY KEY (queue, due_at, place)
) STRICT, WITHOUT ROWID;

-- The log of starts.
CREATE TABLE paceline_start (
    queue INTEGER NOT NULL, fence INTEGER NOT NULL, at INTEGER NOT NULL, job TEXT NOT NULL, task TEXT NOT NULL,
    grp TEXT, cost ANY NOT NULL,
    PRIMARY KEY (queue, fence)
) STRICT, WITHOUT ROWID;

-- One key of a limit ('' : the limit has no groups).
CREATE TABLE paceline_meter (
    id INTEGER PRIMARY KEY,
    space INTEGER NOT NULL,
    name TEXT NOT NULL,
    grp TEXT NOT NULL,
    revision INTEGER NOT NULL,       -- grows with every change
    generation INTEGER NOT NULL,     -- grows when its log of starts was rewritten instead of continued
    leases INTEGER NOT NULL,
    kind TEXT NOT NULL,              -- JSON: the numbers that the cells were counted under
    cells TEXT NOT NULL,             -- JSON: the few numbers of each kind; the starts of a rate are in paceline_spent
    hold_until INTEGER NOT NULL,
    hold_reason TEXT,
    held_at INTEGER NOT NULL,
    refusals INTEGER NOT NULL,
    awaited INTEGER NOT NULL,        -- 1: a sleeper waits for a finish, 2: a lane does
    reserved_by TEXT,
    reserved_until INTEGER NOT NULL,
    reserved_deadline INTEGER NOT NULL,
    reserved_place INTEGER NOT NULL, -- the order in which limits were reserved
    idle_from INTEGER,               -- a new meter would decide the same from then on; NULL: never
    open INTEGER NOT NULL DEFAULT 0, -- the cost of starts whose handlers may begin at any moment
    UNIQUE (space, name, grp)
) STRICT;
CREATE INDEX paceline_meter_reserved ON paceline_meter (space) WHERE reserved_by IS NOT NULL;

-- The cumulative log of a rate: `total` was spent up to `at`.
CREATE TABLE paceline_spent (
    meter INTEGER NOT NULL, part INTEGER NOT NULL, at INTEGER NOT NULL, total INTEGER NOT NULL,
    PRIMARY KEY (meter, part, at)
) STRICT, WITHOUT ROWID;

CREATE TABLE paceline_permit (
    space INTEGER NOT NULL, id TEXT NOT NULL, keys TEXT NOT NULL, started_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    gate INTEGER NOT NULL DEFAULT 0, -- 0: it counts where it was stamped, 1: it is open, 2: it counts where it began
    PRIMARY KEY (space, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX paceline_permit_lease ON paceline_permit (space, lease_until);

CREATE TABLE paceline_worker (
    space INTEGER NOT NULL, id TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (space, id)
) STRICT, WITHOUT ROWID;

-- The latest claim of each worker, for when its answer is lost.
CREATE TABLE paceline_claimed (
    space INTEGER NOT NULL, worker TEXT NOT NULL, claim TEXT NOT NULL, jobs TEXT NOT NULL, PRIMARY KEY (space, worker)
) STRICT, WITHOUT ROWID;

-- Who is to be told that something happened: the address of a datagram socket in each process.
CREATE TABLE paceline_listener (
    address TEXT PRIMARY KEY, space INTEGER NOT NULL, waits INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
