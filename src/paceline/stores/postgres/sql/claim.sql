-- Step 2, claim: take back dead leases, take in what came, then start as many jobs as all limits allow.
-- Locks, in this order: queues, leases, limits, group keys, each sorted. The clock is read when they are held.

-- A claim and the jobs that it started, as arrays: rows would take more time than the claim. What is as usual of a job is
-- left out; `rests` has what is not. The log of starts is written here, where bodies are read anyway.
-- Only as many jobs as an answer can hold that fits into the buffers of a connection: it is sent before its transaction
-- ends, and a client that stands still and reads nothing must not keep the locks meanwhile.
create function paceline.claim_jobs(
    p_space int, p_now bigint, p_queues int[], p_slots int, p_worker text, p_lease bigint, p_claim_id text,
    p_tasks text[], p_also text[], p_room bigint, p_most bigint,
    p_ids text[], p_fences bigint[], p_outcomes text[], p_results bytea[], p_errors text[],
    p_afters bigint[], p_ats bigint[], p_opens boolean[], p_holds jsonb[], p_empty boolean
) returns table (instant bigint, again_at bigint, needs_room bigint, waited bigint, lost text[], wakes text[], seqs bigint[],
    ids text[], queues int[], tasks text[], datas bytea[], grps text[], priorities bigint[], places bigint[],
    attempts int[], keeps bigint[], created_ats bigint[], due_ats bigint[], fences bigint[], rests text[], guards bigint[]) language plpgsql
/* by index */ as $$
#variable_conflict use_column
declare
    h paceline.claim_head := paceline.claim(p_space, p_now, p_queues, p_slots, p_worker, p_lease, p_claim_id, p_tasks, p_also,
        p_room, p_most, p_ids, p_fences, p_outcomes, p_results, p_errors, p_afters, p_ats, p_opens, p_holds, p_empty);
    a record;
    v_fit int;
begin
    if coalesce(h.seqs, '{}') = '{}' then
        return query select h.instant, h.again_at, h.needs_room, 0::bigint, h.lost, h.wakes, h.seqs, null::text[], null::int[],
            null::text[], null::bytea[], null::text[], null::bigint[], null::bigint[], null::int[], null::bigint[],
            null::bigint[], null::bigint[], null::bigint[], null::text[], null::bigint[];
        return;
    end if;
    select sum(octet_length(j.data) + 200) as size, array_agg(j.id) as ids, array_agg(j.queue) as queues,
        array_agg(j.task) as tasks, array_agg(j.data) as datas, array_agg(j.grp) as grps,
        array_agg(j.priority) as priorities, array_agg(j.place) as places, array_agg(j.attempts) as attempts,
        array_agg(j.keep) as keeps, array_agg(j.created_at) as created_ats, array_agg(coalesce(s.due_at, j.due_at)) as due_ats,
        array_agg(j.cost) as costs, bool_or(j.costs is not null) as by_limit,
        array_agg(j.costs) as cost_maps,
        array_agg(case when j.cost <> 1 or s.attempts_made <> 1 or s.returns <> 0 or s.crashes <> 0 or s.cancel_asked
                or s.started_at <> h.instant or s.progress <> 0 or coalesce(j.timeout::text, j.backoff, j.uniq,
                    j.costs::text, s.message, s.error, s.logs::text) is not null
            then jsonb_build_object('attempts_made', coalesce(s.attempts_made, 1), 'crashes', coalesce(s.crashes, 0),
                'returns', coalesce(s.returns, 0),
                'cost', j.cost, 'costs', j.costs, 'timeout', j.timeout, 'backoff', j.backoff, 'unique', j.uniq,
                'unique_until', j.uniq_until, 'started_at', coalesce(s.started_at, h.instant), 'progress', coalesce(s.progress, 0),
                'message', s.message, 'error', s.error, 'logs', s.logs, 'cancel_asked', coalesce(s.cancel_asked, false))::text
            end) as rests,
        case when bool_or(t.guard is not null) then array_agg(coalesce(t.guard, paceline.never())) end as guards,
        case when not h.replayed then paceline.waited(h.instant) end as waited
        into a from unnest(h.seqs, h.guards, h.agains) as t (seq, guard, again)
        cross join lateral (select * from paceline.job o where o.seq = t.seq limit 1) as j
        left join lateral (select * from paceline.lease o where t.again and o.seq = t.seq limit 1) as s on true;
    if not h.replayed then
        if cardinality(p_queues) = 1 then
            insert into paceline.start (queue, at, jobs, tasks, grps, costs, cost_maps)
                values (p_queues[1], h.instant, a.ids, a.tasks, a.grps, a.costs, case when a.by_limit then a.cost_maps end);
        else
            insert into paceline.start (queue, at, jobs, tasks, grps, costs, cost_maps)
                select r.queue, h.instant, array_agg(r.id), array_agg(r.task), array_agg(r.grp), array_agg(r.cost),
                    case when a.by_limit then array_agg(r.map) end
                from (select * from unnest(a.queues, a.ids, a.tasks, a.grps, a.costs, a.cost_maps) with ordinality
                    as t (queue, id, task, grp, cost, map, number) order by t.queue, t.number) as r group by r.queue;
        end if;
    end if;
    if a.size <= 65536 then
        return query select h.instant, h.again_at, h.needs_room, a.waited, h.lost, h.wakes, h.seqs, a.ids, a.queues, a.tasks,
            a.datas, a.grps, a.priorities, a.places, a.attempts, a.keeps, a.created_ats, a.due_ats, h.fences, a.rests,
            a.guards;
        return;
    end if;
    v_fit := (select count(*) from (select sum(octet_length(t.data) + 200) over (order by t.number) as upto
        from unnest(a.datas) with ordinality as t (data, number)) as s where s.upto <= 65536);
    return query select h.instant, h.again_at, h.needs_room, a.waited, h.lost, h.wakes, h.seqs, a.ids[:v_fit],
        a.queues[:v_fit], a.tasks[:v_fit], a.datas[:v_fit], a.grps[:v_fit], a.priorities[:v_fit], a.places[:v_fit],
        a.attempts[:v_fit], a.keeps[:v_fit], a.created_ats[:v_fit], a.due_ats[:v_fit], h.fences[:v_fit], a.rests[:v_fit],
        a.guards;
end $$;

-- One claim; its answer without the bodies of jobs.
create function paceline.claim(
    p_space int, p_now bigint, p_queues int[], p_slots int, p_worker text, p_lease bigint, p_claim_id text,
    p_tasks text[], p_also text[], p_room bigint, p_most bigint,
    p_ids text[], p_fences bigint[], p_outcomes text[], p_results bytea[], p_errors text[],
    p_afters bigint[], p_ats bigint[], p_opens boolean[], p_holds jsonb[], p_empty boolean
) returns paceline.claim_head language plpgsql as $$
declare
    c paceline.choosing;
    v_ended paceline.ended;
begin
    perform paceline.lock_for_claim(p_space, p_now, p_queues, p_ids, p_outcomes, p_holds);
    c := paceline.begin_claim(p_space, p_now, p_queues, p_slots, p_worker, p_lease, p_room, p_most, p_empty);
    -- The tables were emptied or made again: the caller says so.
    if c.space is null then return null; end if;
    if p_claim_id <> '' and c.claim_id = p_claim_id then return paceline.replay(c); end if;
    if c.limited or p_also <> '{}' then c := paceline.lock_shared(c, p_now, p_also); end if;
    if cardinality(p_ids) > 0 then
        v_ended := paceline.end_runs(p_space, c.now, p_ids, p_fences, p_outcomes, p_results, p_errors, p_afters, p_ats,
            p_opens, p_holds, c.empty);
        c.lost := v_ended.lost;
        c.wakes := v_ended.wakes;
    end if;
    if p_tasks is not null then
        c.knowns := array(select paceline.know(t.id, p_tasks) from unnest(p_queues) with ordinality as t (id, place)
            order by t.place);
    end if;
    c := paceline.let_time_pass(c);
    if c.reserved then c := paceline.serve_reserved(c); end if;
    c := paceline.take_turns(c);
    c := paceline.ask_again_at(c);
    -- A claim that did nothing needs no memory: asked again, it is simply asked.
    if c.started <> '{}' or cardinality(p_ids) > 0 then
        perform paceline.remember_claim(p_space, p_worker, p_claim_id, c.claim_version, c.fences[1],
            c.fences[cardinality(c.fences)]);
    end if;
    if c.wakes <> '{}' then perform paceline.notify(p_space, c.wakes); end if;
    return row (c.now, greatest(c.again_at, c.now), c.needs_room, c.lost, c.wakes, c.started, c.fences, c.guards, c.agains,
        false)::paceline.claim_head;
end $$;

-- Lock the queues of a claim, and those that the ends of runs need which come along.
create function paceline.lock_for_claim(p_space int, p_now bigint, p_queues int[], p_ids text[], p_outcomes text[],
    p_holds jsonb[]) returns void language plpgsql as $$
declare
    v_found record;
begin
    -- Every expression is paid for in every claim, jobs or none: what is rare is asked for together.
    select s.next_expiry <= coalesce(p_now, paceline.clock_us()) as expires,
        current_setting('transaction_isolation') <> 'read committed' as old,
        cardinality(p_ids) > 0 and not (array_remove(p_holds, null) = '{}'
            and p_outcomes <@ array['completed', 'failed', 'cancelled']) as special
        into v_found from paceline.space s where s.id = p_space;
    if v_found.old then perform paceline.fail('isolation', jsonb_build_object('error', 'isolation')); end if;
    if v_found.expires then perform paceline.expire(p_space, coalesce(p_now, paceline.clock_us())); end if;
    if v_found.special then
        perform paceline.lock_for_finish(p_space, p_ids, p_holds, p_queues);
    else
        perform from paceline.queue where id = any (p_queues) order by id for no key update;
    end if;
end $$;

-- What this claim has to think of at all, now that nothing changes any more.
create function paceline.begin_claim(p_space int, p_now bigint, p_queues int[], p_slots int, p_worker text, p_lease bigint,
    p_room bigint, p_most bigint, p_empty boolean) returns paceline.choosing language plpgsql as $$
declare
    c paceline.choosing;
begin
    select p_space, p_queues, p_slots, p_worker, p_lease, p_room, p_most, 2 * p_slots + 64, 2 * p_slots + 64,
        '{}'::bigint[], '{}'::int[], '{}'::text[], 0, '{}'::bigint[], '{}'::text[], '{}'::text[], '{}'::bigint[],
        '{}'::bigint[], '{}'::bigint[], '{}'::boolean[], false, false, 0, '{}'::int[], '{}'::bigint[], 0, '{}'::int[],
        l.claim_id, l.version, l.first_fence, l.last_fence, s.next_expiry, coalesce(q.active, '{}'), coalesce(q.active, '{}'),
        greatest(coalesce(p_now, paceline.clock_us()), q.seen_at),
        exists (select from paceline.lim o where o.space = p_space),
        p_empty or exists (select from paceline.listener o where o.space = p_space and o.wants_empty
            and o.until > paceline.clock_us())
        into c.space, c.queues, c.slots, c.worker, c.lease, c.room, c.most, c.moves, c.budget, c.also, c.also_lims,
        c.also_names, c.needs_room, c.skipped, c.wakes, c.lost, c.started, c.fences, c.guards, c.agains, c.reserved, c.busy,
        c.opened, c.stuck_queues, c.stuck_until, c.last, c.limits, c.claim_id, c.claim_version, c.first_fence, c.last_fence,
        c.next_expiry, c.active, c.unpaused, c.now, c.limited, c.empty
        from paceline.space s
        cross join lateral (select max(n.seen_at) as seen_at, array_agg(t.place::int) filter (where not u.paused) as active
            from unnest(p_queues) with ordinality as t (id, place)
            cross join lateral (select o.paused from paceline.queue o where o.id = t.id limit 1) as u
            cross join lateral paceline.newest_queue_state(t.id) as n) as q
        left join lateral paceline.newest_claim(p_space, p_worker) as l on true where s.id = p_space;
    return c;
end $$;

-- The same claim asked again, because its answer was lost: those of its jobs that still run.
create function paceline.replay(c paceline.choosing) returns paceline.claim_head language sql volatile as $$
    select c.now, c.now, 0::bigint, '{}'::text[], '{}'::text[], coalesce(array_agg(s.seq), '{}'), array_agg(s.fence),
        array_agg(s.guard), array_agg(true), true
    from (select * from paceline.lease o where o.queue = any (c.queues) and o.worker = c.worker
        and o.fence between c.first_fence and c.last_fence order by o.fence) as s
$$;

-- Lock all shared keys that a claim may look at, together and in order. The time is read when they are held; it stands
-- still rather than go back.
create function paceline.lock_shared(inout c paceline.choosing, p_now bigint, p_also text[])
language plpgsql as $$
declare
    v_name text;
begin
    foreach v_name in array p_also loop
        perform paceline.require_limit(c.space, v_name);
    end loop;
    select coalesce(array_agg(distinct l), '{}') into c.limits from (
        select unnest(k.shared) as l from paceline.class k where k.queue = any (c.queues)
        union select id from paceline.lim where space = c.space and name = any (p_also)) as s;
    if c.limits = '{}' then return; end if;
    perform paceline.meter_of(t.id, '') from (select unnest(c.limits) as id order by 1) as t
        where not exists (select from paceline.key k where k.lim = t.id and k.grp = '');
    perform paceline.lock_keys(array(select k.id from unnest(c.limits) as t (id)
        cross join lateral (select o.id from paceline.key o where o.lim = t.id and o.grp = '' limit 1) as k));
    c.now := greatest(coalesce(p_now, paceline.clock_us()), c.now,
        (select max(m.seen_at) from paceline.keys_of(c.limits, '') as m));
    if p_also <> '{}' then
        select array_agg((paceline.meter_of(l.id, '')).id order by t.place), array_agg(l.id order by t.place),
            array_agg(l.name order by t.place) into c.also, c.also_lims, c.also_names from unnest(p_also) with ordinality as t (name, place)
            join paceline.lim l on l.space = c.space and l.name = t.name;
    end if;
end $$;

-- Take back dead leases, take in what came, file what is due, open lanes.
create function paceline.let_time_pass(inout c paceline.choosing) language plpgsql as $$
declare
    v_ahead record;
    v_one record;
begin
    select paceline.next_lease_end(c.space) as lease_end, min(d.due_at) as due_at,
        bool_or(paceline.has_arrivals(n)) as came, bool_and(n.waiting = 0) and cardinality(c.queues) = 1 and not c.limited
            and c.active <> '{}' and c.room is null and c.most is null and c.slots > 0 as idle
        into v_ahead from unnest(c.queues) as t (id) cross join lateral paceline.newest_queue_state(t.id) as n
        left join lateral (select o.due_at from paceline.delayed o where o.queue = t.id order by o.due_at limit 1) as d on true;
    c.again_at := v_ahead.lease_end;
    c.next_due := v_ahead.due_at;
    if v_ahead.lease_end <= c.now then
        select * into v_one from paceline.take_back(c.space, c.now, c.moves, c.empty);
        c.busy := v_one.number >= c.moves;
        c.wakes := c.wakes || v_one.wakes;
        c.again_at := paceline.next_lease_end(c.space);
        v_ahead.came := true;
    end if;
    if v_ahead.came and v_ahead.idle and coalesce(v_ahead.due_at > c.now, true) then
        c := paceline.start_in_idle_queue(c);
        v_ahead.came := c.started = '{}';
    end if;
    if v_ahead.came or v_ahead.due_at <= c.now then c := paceline.take_in(c); end if;
    if c.limited then
        -- Classes that came into being just now bring keys that are not locked yet.
        perform paceline.meter_of(s.lim, '') from (select distinct u.lim from paceline.class k, unnest(k.shared) as u (lim)
            where k.queue = any (c.queues) and not u.lim = any (c.limits) order by 1) as s;
        if paceline.unblock_due(c.queues, c.now, c.moves) then
            c.busy := true;
        else
            c.opened := c.now;
        end if;
        c.reserved := exists (select from paceline.meter m join paceline.lim l on l.id = m.lim
            where l.space = c.space and m.reserved_by is not null);
    end if;
end $$;

-- Take in what came and what is due, of each queue at most so many; busy: there is more. When more came than one claim
-- takes in, whoever comes first in that queue cannot be told before all are in: it gives nothing now. Delayed jobs come
-- one after the other as they are due, however many, so that others start meanwhile.
create function paceline.take_in(inout c paceline.choosing) language plpgsql as $$
begin
    for i in 1 .. cardinality(c.queues) loop
        if not paceline.fold(c.queues[i], greatest(c.moves, 500)) then
            c.active := array_remove(c.active, i);
            c.busy := true;
        elsif exists (select from paceline.delayed o where o.queue = c.queues[i] and o.due_at <= c.now) then
            c.busy := paceline.promote_due(c.queues[i], c.now, c.moves) >= c.moves or c.busy;
        end if;
    end loop;
    select min(d.due_at) into c.next_due from unnest(c.queues) as t (id) cross join lateral (
        select o.due_at from paceline.delayed o where o.queue = t.id order by o.due_at limit 1) as d;
end $$;

-- Blocked lanes whose time has come are ready, of each queue at most so many; true when there may be more.
create function paceline.unblock_due(p_queues int[], p_now bigint, p_most int) returns boolean language plpgsql as $$
declare
    v_more boolean := false;
    v_rows tid[];
begin
    for i in 1 .. cardinality(p_queues) loop
        select array_agg(s.ctid) into v_rows from (
            select e.ctid from paceline.queue_state_of(p_queues[i]) as n join paceline.class k on k.queue = n.queue
            cross join lateral (select o.ctid, o.until, o.filed from paceline.lane o
                where o.class = k.id and o.state = paceline.blocked() and o.waiting > 0 and o.until > n.open_from and o.until <= p_now
                order by o.until, o.filed limit p_most) as e
            order by k.id, e.until, e.filed limit p_most) as s;
        continue when v_rows is null;
        v_more := v_more or cardinality(v_rows) >= p_most;
        perform paceline.make_ready(v_rows);
    end loop;
    return v_more;
end $$;

-- When a claim could give more: a limit opens, a delay ends, a lease ends, an override ends.
create function paceline.ask_again_at(inout c paceline.choosing) language plpgsql as $$
declare
    v_also bigint := 0;
begin
    c.busy := c.busy or c.budget <= 0;
    if c.also <> '{}' and not c.busy then
        v_also := paceline.max_opens(c.also, array_fill(1::bigint, array[cardinality(c.also)]));
        if paceline.never() = any (c.stuck_until || v_also) then perform paceline.await_keys(c.also); end if;
    end if;
    if c.busy then
        c.again_at := c.now;
    else
        c.again_at := least(c.again_at, c.next_expiry, case when c.started <> '{}' then c.now + c.lease end,
            case when cardinality(c.started) >= c.slots then greatest(v_also, c.now) when not c.limited then c.next_due end);
        for i in 1 .. case when c.limited and cardinality(c.started) < c.slots then cardinality(c.queues) else 0 end loop
            c.again_at := least(c.again_at,
                greatest(paceline.next_at(c.queues[i], i = any (c.unpaused), c.knowns[i]), v_also,
                    c.stuck_until[array_position(c.stuck_queues, c.queues[i])]));
        end loop;
    end if;
    if c.skipped <> '{}' then
        -- They are ready for other workers.
        perform paceline.unskip(c.skipped);
        perform paceline.forget_lowest(c.queues);
    end if;
    if c.started = '{}' or cardinality(c.queues) > 1 then
        perform paceline.note_claim(t.id, c.now, c.opened) from unnest(c.queues) as t (id);
    end if;
end $$;

-- The earliest instant at which a claim could give more than this one did, as far as time decides.
create function paceline.next_at(p_queue int, p_active boolean, p_known int) returns bigint language plpgsql as $$
declare
    v_at bigint := paceline.never();
    v_shared bigint;
    v_until bigint;
    v_class paceline.class;
    v_queue_state paceline.queue_state := paceline.queue_state_of(p_queue);
    v_low int;
begin
    select due_at into v_at from paceline.delayed where queue = p_queue order by due_at limit 1;
    v_at := coalesce(v_at, paceline.never());
    if p_active is not true then return v_at; end if;
    for v_class in select * from paceline.class where queue = p_queue and not paused
        and (p_known is null or p_known = any (known_by))
    loop
        v_shared := case when v_class.shared = '{}' then 0 else paceline.class_opens(v_class.shared) end;
        if v_shared >= paceline.never() then
            perform paceline.await_keys(array(select id from paceline.keys_of(v_class.shared, '')));
            continue;
        end if;
        v_low := array_position(v_queue_state.low_class, v_class.id);
        if exists (select from paceline.lane where class = v_class.id and state = paceline.ready() and waiting > 0
            and (turn, filed) >= (coalesce(v_queue_state.low_turn[v_low], 0), coalesce(v_queue_state.low_filed[v_low], 0))) then
            v_at := least(v_at, v_shared);
        else
            select until into v_until from paceline.lane
                where class = v_class.id and state = paceline.blocked() and waiting > 0 and until > v_queue_state.open_from
                order by until, filed limit 1;
            if found then v_at := least(v_at, greatest(v_shared, v_until)); end if;
        end if;
    end loop;
    return v_at;
end $$;

-- The number under which a queue knows a set of tasks; null for all of them.
create function paceline.know(p_queue int, p_tasks text[]) returns int language plpgsql as $$
declare
    v_number int;
begin
    if p_tasks is null then return null; end if;
    select number into v_number from paceline.taskset where queue = p_queue and tasks = p_tasks;
    if found then return v_number; end if;
    -- Tasks that some worker does not know form classes of their own, so that they never hide others.
    insert into paceline.taskset (queue, number, tasks)
        select p_queue, coalesce(max(number), 0) + 1, p_tasks from paceline.taskset where queue = p_queue
        returning number into v_number;
    perform paceline.reclassify(p_queue);
    return v_number;
end $$;
