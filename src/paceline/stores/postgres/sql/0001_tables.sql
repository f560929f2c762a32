-- Everything the store keeps. Instants and durations are integer microseconds on the server's clock.
-- "paceline." stands for the schema's name, whatever it is.
-- Rows that every claim changes have a `version`, last in their index: while somebody holds a transaction open, old
-- versions stay, and the newest is found by going backwards from the end, without visiting them.

create sequence paceline.fence;
create sequence paceline.job_seq;
create sequence paceline.lane_id;
create sequence paceline.grp_id;
create sequence paceline.filing;

-- A namespace: several applications apart in one schema.
create table paceline.space (
    id int generated always as identity primary key,
    name text collate "C" not null unique,
    guard bigint not null default 4611686018427387904,
    next_expiry bigint not null default 4611686018427387904
);

-- A queue. Its row is the lock under which lanes, groups and classes of the queue change; it hardly ever changes itself.
create table paceline.queue (
    id int generated always as identity primary key,
    space int not null,
    name text collate "C" not null,
    paused boolean not null default false,
    unique (space, name)
);

-- How far a queue has come.
create table paceline.line (
    queue int not null,
    version bigint not null default 0,
    virtual_time bigint not null default 0,
    filings bigint not null default 0,
    waiting bigint not null default 0, -- in all its lanes
    seen_at bigint not null default 0,
    lease_from bigint not null default 0, -- no lease of the queue ends earlier
    open_from bigint not null default 0, -- no lane of the queue is blocked until so early
    low_class int[] not null default '{}', -- for these classes: no ready lane stands before (low_turn, low_filed)
    low_turn bigint[] not null default '{}',
    low_filed bigint[] not null default '{}',
    folded pg_snapshot, -- what the latest look at arrivals could see,
    folded_by xid8, -- and who looked: a snapshot does not list its own transaction
    folding pg_snapshot, -- a look that found more than one claim takes in: what it could see, who looked,
    folding_by xid8,
    folding_xid xid8, -- and up to where it has come
    folding_id bigint,
    primary key (queue, version)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- A job as it was added; never changed. `place` orders a lane: negative for LIFO.
create table paceline.job (
    seq bigint primary key,
    space int not null,
    id text collate "C" not null,
    queue int not null,
    task text collate "C" not null,
    grp text collate "C",
    data bytea not null,
    priority bigint not null,
    place bigint not null,
    attempts int not null,
    cost bigint not null,
    costs jsonb,
    timeout bigint,
    backoff text,
    keep bigint,
    uniq text collate "C",
    uniq_until bigint,
    created_at bigint not null,
    due_at bigint not null
);
create unique index job_id on paceline.job (id, space);
create index job_queue on paceline.job (queue, seq);

-- Where a job is: exactly one of wait, delayed, lease, done.
-- `again`: its earlier life is in `past`. `big`: its cost is not 1.
create table paceline.wait (
    lane bigint not null,
    priority bigint not null,
    place bigint not null,
    again boolean not null default false,
    big boolean not null default false,
    primary key (lane, priority, place)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create table paceline.delayed (
    queue int not null,
    due_at bigint not null,
    place bigint not null,
    grp text collate "C",
    again boolean not null default false,
    primary key (queue, due_at, place)
);
create index delayed_grp on paceline.delayed (queue, grp) where grp is not null;

create table paceline.past (
    seq bigint primary key,
    attempts_made int not null,
    crashes int not null,
    returns int not null,
    due_at bigint not null,
    started_at bigint,
    progress double precision not null,
    message text,
    error text,
    logs text[],
    fence bigint not null
);

create table paceline.lease (
    seq bigint primary key,
    space int not null,
    queue int not null,
    worker text collate "C" not null,
    fence bigint not null,
    until bigint not null,
    started_at bigint not null,
    attempts_made int not null,
    crashes int not null,
    returns int not null,
    due_at bigint, -- null: as it was added
    progress double precision not null default 0,
    message text,
    error text,
    logs text[],
    cancel_asked boolean not null default false,
    meters bigint[],
    taken bigint[] -- from each of them; null: 1
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index lease_until on paceline.lease (queue, until);

create table paceline.done (
    seq bigint primary key,
    queue int not null,
    state smallint not null, -- 4 completed, 5 failed, 6 cancelled
    finished_at bigint not null,
    forget_at bigint,
    attempts_made int not null,
    crashes int not null,
    returns int not null,
    due_at bigint,
    started_at bigint,
    progress double precision not null,
    message text,
    result bytea,
    error text,
    logs text[],
    fence bigint not null,
    cancel_asked boolean not null
);
create index done_state on paceline.done (queue, state, seq);
create index done_forget on paceline.done (forget_at) where forget_at is not null;

-- The live job that holds a unique key. Only the job's own end and a later job, once its time is over, remove it.
create table paceline.uniq (
    queue int not null,
    key text collate "C" not null,
    seq bigint not null,
    until bigint,
    primary key (queue, key)
);

-- The lock that adders to a group with a maximum size take; claims never touch it.
create table paceline.gate (
    queue int not null,
    grp text collate "C" not null,
    passed bigint not null default 0,
    primary key (queue, grp)
) with (fillfactor = 50);

-- What happened to a queue without its lock: 0 jobs came, 1 a slot is free, 2 a limit may have opened.
-- `xid` lets a claim look at just those that no earlier claim could see, whatever commits late.
create table paceline.arrival (
    queue int not null,
    xid xid8 not null default pg_current_xact_id(),
    id bigint generated always as identity,
    what smallint not null,
    lane bigint,
    task text collate "C",
    grp text collate "C",
    number int not null default 0,
    priority bigint,
    place bigint,
    lim int,
    primary key (queue, xid, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The tasks of a queue that meet the same limits, are paused or not, and are known to the same workers.
create table paceline.class (
    id int generated always as identity primary key,
    queue int not null,
    limits int[] not null,
    shared int[] not null,
    grouped int[] not null,
    paused boolean not null,
    known_by int[] not null,
    unique (queue, limits, paused, known_by)
);

create table paceline.task (
    queue int not null,
    name text collate "C" not null,
    class int,
    paused boolean not null default false,
    primary key (queue, name)
);

create table paceline.taskset (
    queue int not null,
    number int not null,
    tasks text[] collate "C" not null,
    primary key (queue, number)
);

-- A group in one queue; '' are the jobs without one. It has one lane in each of these classes.
create table paceline.grp (
    id bigint primary key default nextval('paceline.grp_id'),
    queue int not null,
    name text collate "C" not null,
    paused boolean not null default false,
    classes int[] not null default '{}',
    lanes bigint[] not null default '{}',
    unique (queue, name)
) with (fillfactor = 70);
create index grp_name on paceline.grp (name);

-- The waiting jobs of one class and group. state: 1 ready, 2 blocked until, 3 parked, 4 paused.
-- `turn` and `filed` are its group's: of several lanes, those of the one that was filed last.
-- No job of it sorts before (head_priority, head_place).
create table paceline.lane (
    id bigint not null,
    version bigint not null default 0,
    queue int not null,
    class int not null,
    grp bigint not null,
    state smallint not null default 1,
    until bigint not null default 0,
    turn bigint not null,
    filed bigint not null,
    waiting int not null default 0,
    head_priority bigint not null default 0,
    head_place bigint not null default 0,
    primary key (id, version)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index lane_ready on paceline.lane (class, turn, filed, version desc) where state = 1 and waiting > 0;
create index lane_blocked on paceline.lane (class, until, filed, version desc) where state = 2 and waiting > 0;

-- A declared limit.
create table paceline.lim (
    id int generated always as identity primary key,
    space int not null,
    name text collate "C" not null,
    queues text[] collate "C",
    tasks text[] collate "C",
    by_group boolean not null,
    kind jsonb not null,
    overrides jsonb not null,
    backoff jsonb,
    held_until bigint not null default 0,
    held_reason text,
    unique (space, name)
);

create table paceline.override (
    lim int not null,
    grp text collate "C" not null,
    number bigint generated always as identity,
    kind jsonb not null,
    reason text,
    expires_at bigint,
    primary key (lim, grp)
);

-- One key of a limit: '' where it is not per group.
create table paceline.key (
    id bigint generated always as identity primary key,
    lim int not null,
    grp text collate "C" not null,
    unique (lim, grp)
);

-- What was counted under a key.
-- parts: eight numbers for each simple kind: what (1 rate, 2 concurrency, 3 delay, 4 spacing), max, per, and its state:
-- rate: total, base, lost_at, last_at; delay and spacing: at, carry, cost.
create table paceline.meter (
    id bigint not null,
    version bigint not null default 0,
    lim int not null,
    grp text collate "C" not null,
    kind jsonb not null,
    parts bigint[] not null,
    slots bigint not null,
    in_flight int not null default 0,
    hold_until bigint not null default 0,
    hold_reason text,
    held_at bigint not null default 0,
    refusals int not null default 0,
    reserved_by text,
    reserved_permit boolean not null default false,
    reserved_until bigint not null default 0,
    reserved_deadline bigint not null default 0,
    reserved_at bigint not null default 0,
    awaited boolean not null default false,
    parked int[] not null default '{}', -- queues that have lanes parked under it
    seen_at bigint not null default 0,
    primary key (id, version)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index meter_reserved on paceline.meter (lim) where reserved_by is not null;

-- What was spent under the rates of a key, summed up: one row for each instant with starts.
create table paceline.spent (
    meter bigint not null,
    part smallint not null,
    at bigint not null,
    cum bigint not null,
    primary key (meter, part, at)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index spent_cum on paceline.spent (meter, part, cum);

-- Starts that are no jobs.
create table paceline.permit (
    space int not null,
    id text collate "C" not null,
    started_at bigint not null,
    until bigint not null,
    meters bigint[] not null,
    primary key (space, id)
);
create index permit_until on paceline.permit (space, until);

-- The log of starts: one row for each claim and queue.
create table paceline.start (
    queue int not null,
    at bigint not null,
    id bigint generated always as identity,
    jobs text[] not null,
    tasks text[] not null,
    grps text[] not null,
    costs bigint[] not null,
    cost_maps jsonb[],
    primary key (queue, at, id)
);

create table paceline.worker (
    space int not null,
    id text collate "C" not null,
    number bigint generated always as identity,
    queues text[] not null,
    tasks text[],
    seen_at bigint not null,
    primary key (space, id)
);

-- The latest claim of each worker, to be given again when its answer was lost: its runs have these fences. Those of
-- others may lie between, but not of this worker, who has one claim at a time.
create table paceline.last_claim (
    space int not null,
    worker text collate "C" not null,
    version bigint not null default 0,
    claim_id text not null,
    first_fence bigint, -- null: it started nothing
    last_fence bigint,
    primary key (space, worker, version)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Who waits for the end of a job, and what became of a job that was not kept.
create table paceline.waiter (
    space int not null,
    id text collate "C" not null,
    token text not null,
    until bigint not null,
    primary key (space, id, token)
);

create table paceline.last_word (
    space int not null,
    id text collate "C" not null,
    at bigint not null,
    record jsonb not null,
    result bytea,
    data bytea,
    primary key (space, id)
);

-- Processes that listen, and whether anybody sleeps there, so that nothing is sent when nobody does.
create table paceline.listener (
    space int not null,
    process text not null,
    wants_empty boolean not null,
    asleep boolean not null,
    until bigint not null,
    primary key (space, process)
);
