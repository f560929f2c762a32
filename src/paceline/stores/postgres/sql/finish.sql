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
    perform paceline.notify(p_space, v_answer.wakes);
    return v_answer;
end $$;

-- Ends that have to be written alone, in their order: those with holds, and retries that wait for their limits.
create function paceline.ends_alone(p_outcome text, p_opens boolean, p_at bigint, p_hold jsonb) returns boolean
language sql immutable as $$
    select p_hold is not null or p_outcome = 'retry' and p_opens and p_at is null
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

-- Ends of runs, as parallel arrays, in their order; all that need not be written alone are written together.
create function paceline.end_runs(
    p_space int, p_now bigint, p_ids text[], p_fences bigint[], p_outcomes text[], p_results bytea[], p_errors text[],
    p_afters bigint[], p_ats bigint[], p_opens boolean[], p_holds jsonb[], p_empty boolean
) returns paceline.ended language plpgsql as $$
declare
    v_answer paceline.ended := row ('{}'::text[], '{}'::text[], p_now);
    v_ended paceline.ended;
    v_dues bigint[];
    v_alone boolean[];
    v_first int := 1;
    v_last int;
begin
    if coalesce(array_remove(p_holds, null), '{}') = '{}' and not 'retry' = any (p_outcomes) then
        return paceline.end_leases(p_space, p_now, p_ids, p_fences, p_outcomes, null, p_results, p_errors, p_empty);
    end if;
    v_dues := array(select coalesce(t.at, p_now + t.after, p_now)
        from unnest(p_ats, p_afters) with ordinality as t (at, after, n) order by t.n);
    v_alone := array(select paceline.ends_alone(t.outcome, t.opens, t.at, t.hold)
        from unnest(p_outcomes, p_opens, p_ats, p_holds) with ordinality as t (outcome, opens, at, hold, n) order by t.n);
    perform paceline.require_limit(p_space, h ->> 'limit') from unnest(p_holds) as t (hold),
        jsonb_array_elements(t.hold) as h where coalesce(jsonb_typeof(h -> 'create'), 'null') = 'null';
    while v_first <= cardinality(p_ids) loop
        v_last := v_first;
        if v_alone[v_first] then
            v_ended := paceline.hold_by_end(p_space, p_now, p_ids[v_first], p_fences[v_first], p_holds[v_first]);
            v_answer.wakes := v_answer.wakes || v_ended.wakes;
            if p_opens[v_first] and p_ats[v_first] is null then v_dues[v_first] := coalesce(v_ended.instant, p_now); end if;
        else
            while v_alone[v_last + 1] = false loop v_last := v_last + 1; end loop;
        end if;
        v_ended := paceline.end_leases(p_space, p_now, p_ids[v_first : v_last], p_fences[v_first : v_last],
            p_outcomes[v_first : v_last], v_dues[v_first : v_last], p_results[v_first : v_last], p_errors[v_first : v_last],
            p_empty);
        v_answer.lost := v_answer.lost || v_ended.lost;
        v_answer.wakes := v_answer.wakes || v_ended.wakes;
        v_first := v_last + 1;
    end loop;
    return v_answer;
end $$;

-- What a run refuses for its limits before it ends; `instant` is the latest next start of its keys.
create function paceline.hold_by_end(p_space int, p_now bigint, p_id text, p_fence bigint, p_hold jsonb)
returns paceline.ended language plpgsql as $$
declare
    v_answer paceline.ended := row ('{}'::text[], '{}'::text[], null);
    v_seq bigint := (select seq from paceline.job where space = p_space and id = p_id);
    v_lease paceline.lease;
begin
    select * into v_lease from paceline.lease where seq = v_seq and fence = p_fence for update;
    if not found then return v_answer; end if;
    if v_lease.gate = 1 then
        -- A run that ends has begun.
        v_answer.wakes := paceline.begin_open(p_space, array[v_seq], p_now);
        select * into v_lease from paceline.lease where seq = v_seq;
    end if;
    perform paceline.hold_key(p_space, h, p_now, v_lease.started_at) from jsonb_array_elements(p_hold) as h;
    v_answer.instant := paceline.opens_for(v_lease, p_now);
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
            if v_opens < paceline.never() then v_at := greatest(v_at, v_opens); end if;
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
    v_numbers int[];
    v_latest bigint[];
    v_wake boolean;
begin
    select array_agg(m.ctid), array_agg(s.number), array_agg(s.latest), bool_or(m.awaited or m.parked <> '{}')
        into v_rows, v_numbers, v_latest, v_wake
        from (select t.id, t.number, t.latest from unnest(p_meters, p_numbers, p_latest) as t (id, number, latest)
            cross join lateral (select k.grp from paceline.key k where k.id = t.id limit 1) as o
            order by o.grp <> '', t.id) as s
        cross join lateral (select k.ctid, k.awaited, k.parked from paceline.meter k where k.id = s.id
            order by k.version desc limit 1 for no key update) as m;
    if v_wake then
        insert into paceline.arrival (queue, what, lim, grp)
            select t.queue, 1, m.lim, m.grp from paceline.meters(p_meters) as m, unnest(m.parked) as t (queue)
            where m.parked <> '{}' order by m.id;
    end if;
    update paceline.meter m set version = m.version + 1, in_flight = m.in_flight - t.number, awaited = false, parked = '{}',
        refusals = case when t.latest > m.held_at then 0 else m.refusals end
        from unnest(v_rows, v_numbers, v_latest) as t (row, number, latest) where m.ctid = t.row;
    return coalesce(v_wake, false);
end $$;

-- Free the slots of runs that end. `p_same`: the keys of all of them, where these are the same and all went well.
create function paceline.free_ends(p_same bigint[], p_latest bigint, p_ends int[], p_seqs bigint[], p_outcomes text[])
returns boolean language plpgsql as $$
declare
    v_keys record;
begin
    if p_same is not null then
        return paceline.free(p_same, array_fill(cardinality(p_ends), array[cardinality(p_same)]),
            array_fill(p_latest, array[cardinality(p_same)]));
    end if;
    select array_agg(k.meter) as meters, array_agg(k.number) as numbers, array_agg(k.latest) as latest into v_keys from (
        select u.meter, count(*)::int as number, max(o.started_at) filter (where p_outcomes[t.i] = 'completed') as latest
        from unnest(p_ends, p_seqs) as t (i, seq)
        cross join lateral (select * from paceline.lease l where l.seq = t.seq limit 1) as o
        cross join lateral unnest(o.meters) as u (meter) group by u.meter) as k;
    return paceline.free(v_keys.meters, v_keys.numbers, v_keys.latest);
end $$;

-- End the runs whose fences are still current: each table is written once for all of them. A job that was asked to cancel
-- ends cancelled, whatever its handler did. `p_over`: nobody ends them, their leases are over.
create function paceline.end_leases(
    p_space int, p_now bigint, p_ids text[], p_fences bigint[], p_outcomes text[], p_dues bigint[], p_results bytea[],
    p_errors text[], p_empty boolean, p_over boolean default false
) returns paceline.ended language plpgsql as $$
declare
    v_answer paceline.ended := row (p_ids, '{}'::text[], p_now);
    v_awaited boolean; -- ends are waited for
    v record;
    v_freed boolean; -- a key that is waited for has a slot
    v_back boolean; -- some wait again
    v_seqs bigint[];
    v_ids text[];
    v_gone bigint[];
begin
    -- Locked in the order of their numbers, so that two who end the same runs never wait for each other. The same end
    -- once more finds its run over.
    select array_agg(n.place) as ends, array_agg(s.ctid) as rows, array_agg(n.seq) as seqs, array_agg(n.id) as ids,
        array_agg(n.keep) as keeps, array_agg(distinct s.queue) as queues, bool_or(n.uniq) as uniqs,
        array_agg(paceline.state_after(p_outcomes[n.place], s.cancel_asked, s.crashes)) as states,
        array_agg(n.seq) filter (where n.keep = 0) as gone, bool_or(n.keep is distinct from 0) as kept,
        bool_or(s.meters is not null) as charged, bool_or(s.gate = 1) as open, max(s.started_at) as latest,
        case when bool_and(s.meters is not null) and min(s.meters::text) = max(s.meters::text)
            and array['completed'] @> p_outcomes then min(s.meters::text)::bigint[] end as same into v
        from (select distinct on (j.seq, t.fence) j.seq, j.keep, j.uniq is not null as uniq, t.id, t.fence, t.place::int
            from unnest(p_ids, p_fences) with ordinality as t (id, fence, place)
            cross join lateral (select o.seq, o.keep, o.uniq from paceline.job o
                where o.id = t.id and o.space = p_space limit 1) as j order by j.seq, t.fence, t.place) as n
        cross join lateral (select o.ctid, o.queue, o.meters, o.started_at, o.gate, o.cancel_asked, o.crashes
            from paceline.lease o where o.seq = n.seq and o.fence = n.fence limit 1 for update) as s;
    if v.ends is null then return v_answer; end if;
    v_answer.lost := case when cardinality(v.ends) = cardinality(p_ids) then '{}' else array(
        select t.id from unnest(p_ids) with ordinality as t (id, place) where not t.place = any (v.ends)
        order by t.place) end;
    -- A caller that begins to wait from here on finds the runs locked.
    v_awaited := exists (select from paceline.waiter where space = p_space);
    if v.charged then
        -- A claim has locked its own queues, and a run is nearly always of one of them: nothing is waited for here.
        perform from paceline.queue where id = any (v.queues) order by id for no key update;
    end if;
    if v.open and not p_over then
        -- A run that ends has begun.
        v_answer.wakes := paceline.begin_open(p_space, v.seqs, p_now);
        select v_answer.lost, v_answer.wakes || e.wakes, p_now into v_answer from paceline.end_leases(p_space, p_now, p_ids,
            p_fences, p_outcomes, p_dues, p_results, p_errors, p_empty) as e;
        return v_answer;
    end if;
    if v.open then
        perform paceline.abandon(o.meters, o.taken) from unnest(v.seqs) as t (seq)
            cross join lateral (select * from paceline.lease l where l.seq = t.seq limit 1) as o where o.gate = 1;
    end if;
    v_freed := v.charged and paceline.free_ends(v.same, v.latest, v.ends, v.seqs, p_outcomes);
    if v.kept or v_awaited then
        perform paceline.write_done(v.ends, v.seqs, v.keeps, v.states, p_now, p_outcomes, p_results, p_errors, v_awaited,
            v.queues);
    end if;
    v_back := array_position(v.states, null) is not null;
    if v_back then
        perform paceline.go_back(v.ends, v.seqs, v.states, p_now, p_outcomes, p_dues, p_errors);
    end if;
    delete from paceline.lease where ctid = any (v.rows);
    if v_freed then v_answer.wakes := v_answer.wakes || '*'::text; end if;
    if v_back then
        v_answer.wakes := v_answer.wakes || array(select 'q' || q from unnest(v.queues) as u (q));
        -- What follows concerns only those that are over.
        select array_agg(t.seq), array_agg(t.id), array_agg(t.seq) filter (where t.keep = 0) into v_seqs, v_ids, v_gone
            from unnest(v.seqs, v.ids, v.keeps, v.states) as t (seq, id, keep, state) where t.state is not null;
    else
        v_seqs := v.seqs;
        v_ids := v.ids;
        v_gone := v.gone;
    end if;
    if v_seqs is null then return v_answer; end if;
    v_answer.wakes := v_answer.wakes || paceline.after_end(p_space, v_seqs, v_ids, v_gone, v.uniqs, v.queues, p_now,
        p_empty, v_awaited);
    return v_answer;
end $$;

-- The final state of a job after a run, null when it waits again.
create function paceline.state_after(p_outcome text, p_cancel_asked boolean, p_crashes int) returns int
language sql immutable as $$
    select case when p_cancel_asked or p_outcome = 'cancelled' then 6 when p_outcome = 'completed' then 4
        when p_outcome = 'failed' or p_outcome = 'crashed' and p_crashes >= 2 then 5 end
$$;

-- Runs that are over for good; what is not kept is written only where something waits for its end.
create function paceline.write_done(p_ends int[], p_seqs bigint[], p_keeps bigint[], p_states int[], p_now bigint,
    p_outcomes text[], p_results bytea[], p_errors text[], p_heard boolean, p_queues int[]) returns void language plpgsql as $$
begin
    if cardinality(p_queues) = 1 and array_position(p_states, null) is null and array_position(p_keeps, 0) is null then
        perform paceline.add_tally(p_queues[1], p_states);
    else
        perform paceline.add_tally(s.queue, s.states) from (select o.queue, array_agg(t.state) as states
            from unnest(p_seqs, p_keeps, p_states) as t (seq, keep, state)
            cross join lateral (select l.queue from paceline.lease l where l.seq = t.seq limit 1) as o
            where t.state is not null and t.keep is distinct from 0 group by o.queue) as s;
    end if;
    insert into paceline.done (seq, queue, state, finished_at, forget_at, attempts_made, crashes, returns, due_at,
            started_at, progress, message, result, error, logs, fence, cancel_asked)
        select o.seq, o.queue, t.state, p_now, p_now + t.keep, o.attempts_made - (e.crashed and t.state = 5)::int,
            o.crashes + (e.crashed and t.state <> 6)::int, o.returns, o.due_at, o.started_at,
            case when t.state = 4 then 100 else o.progress end, o.message, case when t.state = 4 then p_results[t.i] end,
            case when t.state = 4 then null when t.state = 5 and e.crashed then paceline.crashed_text(o.crashes + 1, e.error)
                else e.error end, o.logs, o.fence, o.cancel_asked
        from unnest(p_ends, p_seqs, p_keeps, p_states) as t (i, seq, keep, state)
        cross join lateral (select * from paceline.lease l where l.seq = t.seq limit 1) as o
        cross join lateral (select p_outcomes[t.i] = 'crashed' as crashed, coalesce(p_errors[t.i], o.error) as error offset 0)
            as e
        where t.state is not null and (p_heard or t.keep is distinct from 0);
end $$;

-- Jobs that wait again: a retry at its time, everything else at once and in its old place.
create function paceline.go_back(p_ends int[], p_seqs bigint[], p_states int[], p_now bigint, p_outcomes text[],
    p_dues bigint[], p_errors text[]) returns void language plpgsql as $$
declare
    v_seqs bigint[];
    v_dues bigint[];
begin
    select array_agg(t.seq order by t.i), array_agg(case when p_outcomes[t.i] = 'retry' then greatest(p_dues[t.i], p_now)
            else p_now end order by t.i) into v_seqs, v_dues
        from unnest(p_ends, p_seqs, p_states) as t (i, seq, state) where t.state is null;
    insert into paceline.past (seq, attempts_made, crashes, returns, due_at, started_at, progress, message, error, logs,
            fence)
        select o.seq, o.attempts_made - (e.outcome <> 'retry')::int, o.crashes + (e.outcome = 'crashed')::int,
            o.returns + (e.outcome = 'returned')::int, case when e.outcome = 'retry' then greatest(p_dues[t.i], p_now) else p_now end,
            o.started_at, o.progress, o.message, coalesce(p_errors[t.i], o.error), o.logs, o.fence
        from unnest(p_ends, p_seqs, p_states) as t (i, seq, state)
        cross join lateral (select * from paceline.lease l where l.seq = t.seq limit 1) as o
        cross join lateral (select p_outcomes[t.i] as outcome offset 0) as e where t.state is null;
    perform paceline.arrive(v_seqs, v_dues, array_fill(true, array[cardinality(v_seqs)]), p_now);
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
            insert into paceline.final_record (space, id, at, record, result, data)
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
        and coalesce((select waiting from paceline.queue_state where queue = p_queue order by version desc limit 1), 0) = 0
$$;

create function paceline.crashed_text(p_crashes int, p_error text) returns text language sql immutable as $$
    select format('crashed: it took down its worker %s times (%s)', p_crashes, coalesce(p_error, 'None'))
$$;

-- A job that has not started ends: cancelled, or failed because it can never start.
create function paceline.end_waiting(p_job paceline.job, p_state int, p_now bigint, p_error text, p_empty boolean)
returns text[] language plpgsql as $$
declare
    v_past paceline.past;
begin
    delete from paceline.past where seq = p_job.seq returning * into v_past;
    insert into paceline.done (seq, queue, state, finished_at, forget_at, attempts_made, crashes, returns, due_at,
            started_at, progress, message, error, logs, fence, cancel_asked)
        values (p_job.seq, p_job.queue, p_state, p_now, p_now + p_job.keep, coalesce(v_past.attempts_made, 0),
            coalesce(v_past.crashes, 0), coalesce(v_past.returns, 0), coalesce(v_past.due_at, p_job.due_at),
            v_past.started_at, coalesce(v_past.progress, 0), v_past.message, coalesce(p_error, v_past.error),
            v_past.logs, coalesce(v_past.fence, 0), false);
    if p_job.keep is distinct from 0 then perform paceline.add_tally(p_job.queue, array[p_state]); end if;
    return case when p_state = 5 then array[paceline.failed_word(p_job, coalesce(v_past.attempts_made, 0), p_error)] end
        || paceline.after_end(p_job.space, array[p_job.seq], array[p_job.id],
            case when p_job.keep = 0 then array[p_job.seq] end, p_job.uniq is not null, array[p_job.queue], p_now,
            p_empty, true);
end $$;

-- A job that no worker failed, but this step itself: the caller writes it into its log.
create function paceline.failed_word(p_job paceline.job, p_attempts_made int, p_error text) returns text
language sql volatile as $$
    select 'f' || jsonb_build_object('id', p_job.id, 'queue', q.name, 'task', p_job.task, 'group', p_job.grp,
        'attempts_made', p_attempts_made, 'error', p_error)::text
    from paceline.queue q where q.id = p_job.queue
$$;
