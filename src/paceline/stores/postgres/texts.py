"""The statements that jobs live by: each calls one function and reads the jobs it speaks of, in one round trip."""

from __future__ import annotations

INSERT = """select i.refused, i.ids, i.seqs, i.existed, i.instant, r.*
from paceline.insert_jobs($1::int, $2::bigint, $3::text[], $4::int[], $5::text[], $6::bytea[], $7::text[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::boolean[], $13::int[], $14::text[], $15::bigint[], $16::bigint[],
    $17::text[]::jsonb[], $18::bigint[], $19::text[], $20::bigint[], $21::boolean) as i
left join lateral (
    select * from paceline.records($1::int, i.found, i.instant) where i.found is not null) as r on true"""

ADD_ONE = """with came as (
    insert into paceline.job (seq, space, id, queue, task, grp, data, priority, place, attempts, cost, timeout, backoff,
            keep, created_at, due_at)
        select s.seq, $1::int, $3::text, $6::int, $7::text, $5::text, $4::bytea, $8::bigint,
            case when $9::boolean then -s.seq else s.seq end, $10::int, 1, $12::bigint, $11::text, $13::bigint,
            s.now, s.now
        from (select nextval('paceline.job_seq') as seq, coalesce($2::bigint, paceline.clock_us()) as now offset 0) as s
        on conflict (id, space) do nothing returning seq, place, created_at
), lane as materialized (
    select paceline.guess_lane($6::int, $7::text, $5::text) as id
), waits as (
    insert into paceline.wait (lane, priority, place) select l.id, $8::bigint, c.place from came c, lane l
), arrivals as (
    insert into paceline.arrival (queue, what, lane, task, grp, number, priority, place)
        select $6::int, 0, l.id, $7::text, $5::text, 1, $8::bigint, c.place from came c, lane l
)
select c.seq, c.created_at, (select pg_notify('paceline.wakeups', $1::int || chr(10) || pg_backend_pid() || chr(10)
    || 'q' || q.name)::text from paceline.queue q where q.id = $6::int
    and paceline.has_listeners($1::int, $14::boolean))
from came c"""
"""The same for one job with a new id, in plain SQL: a function would take twice the time. Asked again after a lost
answer, it does nothing."""

CLAIM = """select * from paceline.claim_jobs($1::int, $2::bigint, $3::int[], $4::int, $5::text, $6::bigint, $7::text,
    $8::text[], $9::text[], $10::bigint, $11::bigint, $12::text[], $13::bigint[], $14::text[], $15::bytea[],
    $16::text[], $17::bigint[], $18::bigint[], $19::boolean[], $20::text[]::jsonb[], $21::boolean)"""

CLAIMED = """select r.* from paceline.records($1::int, $2::bigint[], $3::bigint) as r where r.worker = $4::text"""

FINISH = """select lost, wakes, instant from paceline.finish($1::int, $2::bigint, $3::text[], $4::bigint[], $5::text[],
    $6::bytea[], $7::text[], $8::bigint[], $9::bigint[], $10::boolean[], $11::text[]::jsonb[], $12::boolean)"""

DECIDE_AGAIN = """select refused, lost, wakes, instant from paceline.decide_again($1::int, $2::bigint, $3::text[],
    $4::bigint[], $5::boolean)"""

BEGUN = """select lost, wakes, instant from paceline.begun($1::int, $2::bigint, $3::text[], $4::bigint[],
    $5::bigint[])"""

ACQUIRE = """select granted, instant, until, leased, wakes, coalesce(guard, 4611686018427387904), waited, refused
from paceline.acquire($1::int, $2::bigint, $3::text[], $4::text[], $5::bigint[], $6::text, $7::bigint, $8::boolean,
    $9::boolean)"""

ACQUIRE_LATE = """select granted, instant, until, leased, wakes, guard, waited, refused
from paceline.acquire_late($1::int, $2::bigint, $3::text[], $4::text[], $5::bigint[], $6::text, $7::bigint,
    $8::bigint)"""

WARM_UP = "select paceline.warm_up()"

GET = """select r.* from paceline.records($1::int, paceline.seqs_of($1::int, $2::text[]),
    coalesce($3::bigint, paceline.clock_us())) as r"""

ABOUT = """select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
    current_setting('max_connections'), (select count(*) from pg_stat_activity where backend_type = 'client backend')"""
