-- Step 4, finish: end runs whose fence is still current, free their slots, and decide where the jobs go.
-- States: 1 waiting, 2 delayed, 3 active, 4 completed, 5 failed, 6 cancelled.

create type paceline.ended as (lost text[], wakes text[], instant bigint);

-- The queues whose locks a finish needs: those of runs that were charged to keys.
create function paceline.queues_of(p_space int, p_ids text[]) returns int[] language sql stable as $$
    select coalesce(array_agg(distinct s.queue), '{}') from unnest(p_ids) as t (id)
        cross join lateral (select o.seq from paceline.job o where o.id = t.id and o.space = p_space limit 1) as j
        cross join lateral (select o.queue from paceline.lease o where o.seq = j.seq and o.meters is not null limit 1) as s
$$;

create function paceline.finish(
    p_space int, p_now bigint, p_ids text[], p_fences bigint[], p_outcomes text[], p_results bytea[], p_errors text[],
    p_afters bigint[], p_ats bigint[], p_opens boolean[], p_holds jsonb[], p_empty boolean
) returns paceline.ended language plpgsql
/* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_answer paceline.ended;
begin
    perform paceline.expire(p_space, v_now);
    perform paceline.lock_for_finish(p_space, p_ids, p_holds, '{}');
    v_now := coalesce(p_now, paceline.clock_us());
    v_answer := paceline.end_runs(p_space, v_now, p_ids, p_fences, p_outcomes, p_results, p_errors, p_afters, p_ats,
        p_opens, p_holds, paceline.wants_empty(p_space, p_empty));
    v_answer.instant := v_now;
    perform paceline.tell(p_space, v_answer.wakes);
    return v_answer;
end $$;

-- Ends that are written together: completed, failed and cancelled runs without holds.
create function paceline.are_plain(p_outcomes text[], p_holds jsonb[]) returns boolean language sql immutable as $$
    select coalesce(array_remove(p_holds, null), '{}') = '{}' and p_outcomes <@ array['completed', 'failed', 'cancelled']
$$;

-- Lock the queues that ends of runs need and those that a claim asks for, all of them in one order.
create function paceline.lock_for_finish(p_space int, p_ids text[], p_holds jsonb[], p_more int[]) returns void
language plpgsql as $$
declare
    v_queues int[] := p_more;
begin
    if array_remove(p_holds, null) <> '{}' and exists (select from unnest(p_holds) as t (hold),
        jsonb_array_elements(t.hold) as h where h -> 'create' is not null)
    then
        perform paceline.lock_queues(p_space);
        return;
    end if;
    -- Where nothing is limited, no run was charged to anything.
    if cardinality(p_ids) > 0 and exists (select from paceline.lim where space = p_space) then
        v_queues := v_queues || paceline.queues_of(p_space, p_ids);
    end if;
    if v_queues <> '{}' then
        perform from paceline.queue where id = any (v_queues) order by id for no key update;
    end if;
end $$;

-- Ends of runs, as parallel arrays. Plain ends of many jobs are written together, others one after the other.
create function paceline.end_runs(
    p_space int, p_now bigint, p_ids text[], p_fences bigint[], p_outcomes text[], p_results bytea[], p_errors text[],
    p_afters bigint[], p_ats bigint[], p_opens boolean[], p_holds jsonb[], p_empty boolean
) returns paceline.ended language plpgsql as $$
declare
    v_answer paceline.ended;
    v_hold jsonb;
    v_job paceline.job;
    v_lease paceline.lease;
    v_due bigint;
    v_wakes text[] := '{}';
    v_lost text[] := '{}';
begin
    if paceline.are_plain(p_outcomes, p_holds) then
        return paceline.end_plainly(p_space, p_now, p_ids, p_fences, p_outcomes, p_results, p_errors, p_empty);
    end if;
    for v_hold in select h from unnest(p_holds) as t (hold), jsonb_array_elements(t.hold) as h loop
        if coalesce(jsonb_typeof(v_hold -> 'create'), 'null') = 'null' then
            perform paceline.require_limit(p_space, v_hold ->> 'limit');
        end if;
    end loop;
    for i in 1 .. cardinality(p_ids) loop
        if p_outcomes[i] in ('completed', 'failed', 'cancelled') and p_holds[i] is null then
            v_answer := paceline.end_plainly(p_space, p_now, array[p_ids[i]], array[p_fences[i]],
                array[p_outcomes[i]], array[p_results[i]], array[p_errors[i]], p_empty);
            v_lost := v_lost || v_answer.lost;
            v_wakes := v_wakes || v_answer.wakes;
            continue;
        end if;
        select * into v_job from paceline.job where space = p_space and id = p_ids[i];
        select * into v_lease from paceline.lease where seq = v_job.seq and fence = p_fences[i] for update;
        if not found then
            v_lost := v_lost || p_ids[i];
            continue;
        end if;
        if v_lease.gate = 1 then
            -- Whoever ends a run has begun it, or would not know.
            v_wakes := v_wakes || paceline.begin_open(p_space, array[v_lease.seq], p_now);
            select * into v_lease from paceline.lease where seq = v_lease.seq;
        end if;
        for v_hold in select h from jsonb_array_elements(p_holds[i]) as h loop
            perform paceline.hold_key(p_space, v_hold, p_now, v_lease.started_at);
        end loop;
        v_due := p_now;
        if p_outcomes[i] = 'retry' then
            v_due := case when p_ats[i] is not null then p_ats[i]
                when p_opens[i] then paceline.opens_for(v_lease, p_now) else p_now + p_afters[i] end;
        end if;
        v_wakes := v_wakes || paceline.end_run(v_job, v_lease, p_outcomes[i], p_now, v_due, p_results[i], p_errors[i],
            p_empty);
    end loop;
    v_answer.lost := v_lost;
    v_answer.wakes := v_wakes;
    return v_answer;
end $$;

-- The latest next start of a run's keys; a slot that is taken, or a cost that never fits, opens at no known time.
create function paceline.opens_for(p_lease paceline.lease, p_now bigint) returns bigint language plpgsql as $$
declare
    v_at bigint := p_now;
    v_opens bigint;
    m paceline.meter;
begin
    for i in 1 .. coalesce(cardinality(p_lease.meters), 0) loop
        m := paceline.meter_at(p_lease.meters[i]);
        if m.id is not null then
            v_opens := paceline.opens_in_time(m, coalesce(p_lease.taken[i], 1));
            if v_opens < 4611686018427387904 then v_at := greatest(v_at, v_opens); end if;
        end if;
    end loop;
    return v_at;
end $$;

-- A lease ended: its slots are free, and whoever waits for one is told. Locks keys in order: shared ones first.
-- p_latest: the latest start among the runs that went well; after a hold it makes the next refusal the first again.
create function paceline.free(p_meters bigint[], p_numbers int[], p_latest bigint[]) returns boolean
language plpgsql as $$
declare
    v_rows tid[];
    v_wake boolean;
begin
    select array_agg(m.ctid), coalesce(bool_or(m.awaited or m.parked <> '{}'), false) into v_rows, v_wake
        from (select o.id from unnest(p_meters) as t (id)
            cross join lateral (select * from paceline.key k where k.id = t.id limit 1) as o
            group by o.id, o.grp order by o.grp <> '', o.id) as s
        cross join lateral (select k.ctid, k.awaited, k.parked from paceline.meter k where k.id = s.id
            order by k.version desc limit 1 for no key update) as m;
    if v_wake then
        insert into paceline.arrival (queue, what, lim, grp)
            select t.queue, 1, m.lim, m.grp from paceline.meters(p_meters) as m, unnest(m.parked) as t (queue)
            where m.parked <> '{}' order by m.id;
    end if;
    update paceline.meter m set version = m.version + 1,
        in_flight = m.in_flight - p_numbers[array_position(p_meters, m.id)], awaited = false, parked = '{}',
        refusals = case when p_latest[array_position(p_meters, m.id)] > m.held_at then 0 else m.refusals end
        where m.ctid = any (v_rows);
    return v_wake;
end $$;

-- Completed, failed and cancelled runs without holds: each table is written once for all of them.
create function paceline.end_plainly(
    p_space int, p_now bigint, p_ids text[], p_fences bigint[], p_outcomes text[], p_results bytea[], p_errors text[],
    p_empty boolean
) returns paceline.ended language plpgsql as $$
declare
    v_answer paceline.ended;
    v_heard boolean; -- somebody waits for ends
    v_ends int[]; -- which ends are accepted, and of which runs
    v_rows tid[];
    v_seqs bigint[];
    v_keeps bigint[];
    v_ended text[];
    v_gone bigint[];
    v_uniqs boolean;
    v_charged boolean;
    v_meters bigint[];
    v_numbers int[];
    v_latest bigint[];
    v_started bigint;
    v_open bigint[];
    v_queues int[];
    v_wakes text[] := '{}';
begin
    -- Locked in the order of their numbers, so that two who end the same runs never wait for each other. The same end
    -- once more finds its run over.
    select array_agg(n.place), array_agg(s.ctid), array_agg(n.seq), array_agg(n.keep), array_agg(n.id),
        array_agg(n.seq) filter (where n.keep = 0), bool_or(n.uniq), bool_or(s.meters is not null),
        array_agg(distinct s.queue), case when bool_and(s.meters is not null) and min(s.meters::text) = max(s.meters::text)
            then min(s.meters::text)::bigint[] end, max(s.started_at), array_agg(n.seq) filter (where s.gate = 1)
        into v_ends, v_rows, v_seqs, v_keeps, v_ended, v_gone, v_uniqs, v_charged, v_queues, v_meters, v_started, v_open
        from (select distinct on (j.seq, t.fence) j.seq, j.keep, j.uniq is not null as uniq, t.id, t.fence, t.place::int
            from unnest(p_ids, p_fences) with ordinality as t (id, fence, place)
            cross join lateral (select o.seq, o.keep, o.uniq from paceline.job o
                where o.id = t.id and o.space = p_space limit 1) as j order by j.seq, t.fence, t.place) as n
        cross join lateral (select o.ctid, o.queue, o.meters, o.started_at, o.gate from paceline.lease o
            where o.seq = n.seq and o.fence = n.fence limit 1 for update) as s;
    if v_ends is null then
        v_answer.lost := p_ids;
        v_answer.wakes := '{}';
        return v_answer;
    end if;
    v_answer.lost := case when cardinality(v_ends) = cardinality(p_ids) then '{}' else array(
        select t.id from unnest(p_ids) with ordinality as t (id, place) where not t.place = any (v_ends)
        order by t.place) end;
    v_heard := exists (select from paceline.waiter where space = p_space);
    if v_charged then
        -- A claim has locked its own queues, and a run is nearly always of one of them: nothing is waited for here.
        perform from paceline.queue where id = any (v_queues) order by id for no key update;
    end if;
    if v_open is not null then
        -- Whoever ends a run has begun it, or would not know.
        v_wakes := paceline.begin_open(p_space, v_seqs, p_now);
        v_answer := paceline.end_plainly(p_space, p_now, p_ids, p_fences, p_outcomes, p_results, p_errors, p_empty);
        v_answer.wakes := v_wakes || v_answer.wakes;
        return v_answer;
    end if;
    if v_meters is not null and array['completed'] @> p_outcomes then
        -- All were charged to the same keys.
        v_numbers := array_fill(cardinality(v_ends), array[cardinality(v_meters)]);
        v_latest := array_fill(v_started, array[cardinality(v_meters)]);
    elsif v_charged then
        select array_agg(k.meter), array_agg(k.number), array_agg(k.latest) into v_meters, v_numbers, v_latest from (
            select u.meter, count(*)::int as number,
                max(o.started_at) filter (where p_outcomes[t.i] = 'completed') as latest
            from unnest(v_ends, v_rows) as t (i, row)
            cross join lateral (select * from paceline.lease l where l.ctid = t.row limit 1) as o
            cross join lateral unnest(o.meters) as u (meter) group by u.meter) as k;
    end if;
    -- What is not kept leaves no trace, unless somebody waits to hear of it.
    if v_gone is null or cardinality(v_gone) < cardinality(v_seqs) or v_heard then
        insert into paceline.done (seq, queue, state, finished_at, forget_at, attempts_made, crashes, returns, due_at,
                started_at, progress, message, result, error, logs, fence, cancel_asked)
            select o.seq, o.queue, case when e.well then 4 when o.cancel_asked or e.outcome = 'cancelled' then 6 else 5 end,
                p_now, p_now + t.keep, o.attempts_made, o.crashes, o.returns, o.due_at, o.started_at,
                case when e.well then 100 else o.progress end, o.message, case when e.well then p_results[t.i] end,
                case when e.well then null else coalesce(p_errors[t.i], o.error) end, o.logs, o.fence, o.cancel_asked
            from unnest(v_ends, v_rows, v_keeps) as t (i, row, keep)
            cross join lateral (select * from paceline.lease l where l.ctid = t.row limit 1) as o
            cross join lateral (select p_outcomes[t.i] as outcome,
                p_outcomes[t.i] = 'completed' and not o.cancel_asked as well offset 0) as e
            where v_heard or t.keep is distinct from 0;
    end if;
    delete from paceline.lease where ctid = any (v_rows);
    if v_meters is not null and paceline.free(v_meters, v_numbers, v_latest) then
        v_wakes := v_wakes || '*'::text;
    end if;
    v_answer.wakes := v_wakes || paceline.after_end(p_space, v_seqs, v_ended, v_gone, v_uniqs, v_queues, p_now,
        p_empty, v_heard);
    return v_answer;
end $$;

-- What follows when jobs are over: unique keys are free, those who wait are told, what is not kept is removed.
-- p_heard: somebody may wait, and also what is not kept was written for them.
create function paceline.after_end(p_space int, p_seqs bigint[], p_ids text[], p_gone bigint[], p_uniqs boolean,
    p_queues int[], p_now bigint, p_empty boolean, p_heard boolean) returns text[] language plpgsql as $$
declare
    v_wakes text[] := '{}';
    v_queue int;
begin
    if p_uniqs then
        -- A locked one is being replaced by a later job, because its time is over.
        delete from paceline.uniq where ctid in (select u.ctid from paceline.uniq u join paceline.job j
            on j.queue = u.queue and j.uniq = u.key and j.seq = u.seq where j.seq = any (p_seqs)
            for update of u skip locked);
    end if;
    if p_heard then
        select v_wakes || coalesce(array_agg(distinct 'j' || w.id), '{}') into v_wakes
            from paceline.waiter w where w.space = p_space and w.id = any (p_ids);
        if p_gone is not null then
            insert into paceline.last_word (space, id, at, record, result, data)
                select p_space, r.id, p_now, to_jsonb(r) - 'data' - 'result', r.result, r.data
                from paceline.records(p_space, p_gone, p_now) as r
                where exists (select from paceline.waiter w where w.space = p_space and w.id = r.id)
                on conflict (space, id) do update set at = excluded.at, record = excluded.record,
                    result = excluded.result, data = excluded.data;
        end if;
    end if;
    if p_gone is not null then
        if p_heard then delete from paceline.done where seq = any (p_gone); end if;
        delete from paceline.job where seq = any (p_gone);
    end if;
    if p_empty then
        foreach v_queue in array p_queues loop
            if paceline.is_empty(v_queue) then v_wakes := v_wakes || ('e' || v_queue); end if;
        end loop;
    end if;
    return v_wakes;
end $$;

create function paceline.is_empty(p_queue int) returns boolean language sql volatile as $$
    select not exists (select from paceline.lease where queue = p_queue)
        and not exists (select from paceline.delayed where queue = p_queue)
        and not exists (select from paceline.arrival where queue = p_queue and what = 0)
        and coalesce((select waiting from paceline.line where queue = p_queue order by version desc limit 1), 0) = 0
$$;

create function paceline.crashed_text(p_crashes int, p_error text) returns text language sql immutable as $$
    select format('crashed: it took down its worker %s times (%s)', p_crashes, coalesce(p_error, 'None'))
$$;

-- Take one job out of its run. A job that somebody cancelled ends cancelled, whatever its handler did.
create function paceline.end_run(p_job paceline.job, p_lease paceline.lease, p_outcome text, p_now bigint,
    p_due_at bigint, p_result bytea, p_error text, p_empty boolean) returns text[] language plpgsql as $$
declare
    v_wakes text[] := '{}';
    v_error text := coalesce(p_error, p_lease.error);
    v_crashes int := p_lease.crashes + (p_outcome = 'crashed')::int;
    v_state int;
    v_due bigint;
begin
    if p_lease.gate = 1 then perform paceline.abandon(p_lease.meters, p_lease.taken); end if;
    delete from paceline.lease where seq = p_lease.seq;
    if p_lease.meters is not null and paceline.free(p_lease.meters,
        array_fill(1, array[cardinality(p_lease.meters)]),
        array_fill(case when p_outcome = 'completed' then p_lease.started_at end, array[cardinality(p_lease.meters)]))
    then
        v_wakes := v_wakes || '*'::text;
    end if;
    if p_lease.cancel_asked or p_outcome = 'cancelled' then
        v_state := 6;
    elsif p_outcome = 'completed' then
        v_state := 4;
        v_error := null;
    elsif p_outcome = 'failed' then
        v_state := 5;
    elsif v_crashes >= 3 and p_outcome = 'crashed' then
        v_state := 5;
        v_error := paceline.crashed_text(v_crashes, v_error);
    end if;
    if v_state is not null then
        insert into paceline.done (seq, queue, state, finished_at, forget_at, attempts_made, crashes, returns, due_at,
                started_at, progress, message, result, error, logs, fence, cancel_asked)
            values (p_lease.seq, p_lease.queue, v_state, p_now, p_now + p_job.keep,
                p_lease.attempts_made - (p_outcome = 'crashed' and v_state = 5)::int,
                case when v_state = 6 then p_lease.crashes else v_crashes end, p_lease.returns, p_lease.due_at,
                p_lease.started_at, case when v_state = 4 then 100 else p_lease.progress end, p_lease.message,
                case when v_state = 4 then p_result end, v_error, p_lease.logs, p_lease.fence, p_lease.cancel_asked);
        return v_wakes || paceline.after_end(p_job.space, array[p_job.seq], array[p_job.id],
            case when p_job.keep = 0 then array[p_job.seq] end, p_job.uniq is not null, array[p_job.queue], p_now,
            p_empty, true);
    end if;
    v_due := case when p_outcome = 'retry' then greatest(p_due_at, p_now) else p_now end;
    insert into paceline.past (seq, attempts_made, crashes, returns, due_at, started_at, progress, message, error, logs,
            fence)
        values (p_lease.seq, p_lease.attempts_made - (p_outcome <> 'retry')::int, v_crashes,
            p_lease.returns + (p_outcome = 'returned')::int, v_due, p_lease.started_at, p_lease.progress,
            p_lease.message, v_error, p_lease.logs, p_lease.fence);
    perform paceline.arrive(p_job, v_due, p_now, true);
    return v_wakes || ('q' || p_job.queue);
end $$;
