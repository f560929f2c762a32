-- Numbers with names. They are immutable, so that plans have them as they are.

-- Later than any instant.
create function paceline.never() returns bigint language sql immutable parallel safe as 'select 4611686018427387904';

-- The turn of a start of cost 1.
create function paceline.one() returns bigint language sql immutable parallel safe as 'select 65536::bigint';

-- What an arrival says: jobs came, a slot under a key is free, a key may have opened.
create function paceline.jobs_came() returns int language sql immutable parallel safe as 'select 0';
create function paceline.key_freed() returns int language sql immutable parallel safe as 'select 1';
create function paceline.key_opened() returns int language sql immutable parallel safe as 'select 2';

-- Where a lane with waiting jobs is filed: by its group's turn, until an instant, until something finishes, until its group
-- is resumed.
create function paceline.ready() returns int language sql immutable parallel safe as 'select 1';
create function paceline.blocked() returns int language sql immutable parallel safe as 'select 2';
create function paceline.parked() returns int language sql immutable parallel safe as 'select 3';
create function paceline.paused() returns int language sql immutable parallel safe as 'select 4';

-- Candidates of a claim: a job of cost 1, one to be considered alone, a lane whose group may start nothing, and what
-- stands for all that was not loaded.
create function paceline.plain_job() returns int language sql immutable parallel safe as 'select 1';
create function paceline.big_job() returns int language sql immutable parallel safe as 'select 2';
create function paceline.closed_lane() returns int language sql immutable parallel safe as 'select 3';
create function paceline.edge() returns int language sql immutable parallel safe as 'select 4';
