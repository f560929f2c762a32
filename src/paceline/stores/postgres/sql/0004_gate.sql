-- Starts that are late: open until their handlers have begun. Each rate, key and run has its guard.
alter table paceline.meter
    add column if not exists open bigint not null default 0, -- the cost of starts whose handlers may begin at any moment
    add column if not exists guard bigint not null default 4611686018427387904; -- the smallest one above 0 of its rates
alter table paceline.lease
    add column if not exists gate smallint not null default 0, -- 0: it counts where it was stamped, 1: it is open, 2: it counts where it began
    add column if not exists guard bigint; -- a handler that begins later than this after its start asks first; null: never
alter table paceline.permit
    add column if not exists gate smallint not null default 0,
    add column if not exists taken bigint[]; -- from each of its keys; null: 1
-- How long after their starts its handlers begin, by task.
alter table paceline.worker add column if not exists lags jsonb;
-- Every job has its own.
alter table paceline.space drop column if exists guard;

-- The eighth number of a rate is its guard.
update paceline.meter m set
    guard = (select min((p ->> 'guard')::bigint) from jsonb_array_elements(m.kind) as p where (p ->> 'guard')::bigint > 0),
    parts = (select array_agg(case when k = 8 and m.parts[i * 8 + 1] = 1
            then coalesce((m.kind -> i ->> 'guard')::bigint, 0) else m.parts[i * 8 + k] end order by i, k)
        from generate_series(0, cardinality(m.parts) / 8 - 1) as i, generate_series(1, 8) as k)
    where exists (select from jsonb_array_elements(m.kind) as p where (p ->> 'guard')::bigint > 0);
