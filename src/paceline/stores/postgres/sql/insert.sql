-- Step 1, insert. Only inserts: no row that a claim locks is changed, so a caller's open transaction blocks no claim.

-- Adds jobs, given as parallel arrays. For each it answers the job that is there now, and whether it was there before.
-- Ids and unique keys are settled by the indexes (the second adder waits for the first one's transaction), sizes of
-- groups under a gate that only adders pass. `refused` is set when nothing was stored.
create function paceline.insert_jobs(
    p_space int, p_now bigint, p_ids text[], p_queues int[], p_tasks text[], p_datas bytea[], p_grps text[],
    p_sizes bigint[], p_delays bigint[], p_dues bigint[], p_priorities bigint[], p_lifos boolean[], p_attempts int[],
    p_backoffs text[], p_timeouts bigint[], p_costs bigint[], p_cost_maps jsonb[], p_keeps bigint[], p_uniqs text[],
    p_ttls bigint[], p_late boolean
) returns table (refused jsonb, ids text[], seqs bigint[], existed boolean[], instant bigint, found bigint[])
language plpgsql
/* by index */ as $$
#variable_conflict use_column
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_number int := cardinality(p_ids);
    v_new boolean[];
    v_ids text[] := p_ids;
    v_seqs bigint[];
    v_inserted int;
    v_size bigint;
    v_sizes jsonb := '{}';
    v_key text;
    v_next int;
    v_old bigint;
    v_held record;
    v_fault jsonb;
begin
    perform paceline.expire(p_space, v_now);
    -- An id that is there already, or twice in this bulk, gives the job that has it.
    select array_agg(t.place = t.first and j.seq is null order by t.place)
        into v_new
        from (select u.id, u.place, min(u.place) over (partition by u.id) as first
            from unnest(p_ids) with ordinality as u (id, place)) as t
        left join lateral (select o.seq from paceline.job o where o.id = t.id and o.space = p_space limit 1) as j on true;
    select array_agg(case when v_new[i] then nextval('paceline.job_seq') end order by i) into v_seqs
        from generate_series(1, v_number) as i;
    insert into paceline.job (seq, space, id, queue, task, grp, data, priority, place, attempts, cost, costs, timeout,
            backoff, keep, uniq, uniq_until, created_at, due_at)
        select v_seqs[i], p_space, p_ids[i], p_queues[i], p_tasks[i], p_grps[i], p_datas[i], p_priorities[i],
            case when p_lifos[i] then -v_seqs[i] else v_seqs[i] end, p_attempts[i], p_costs[i], p_cost_maps[i],
            p_timeouts[i], p_backoffs[i], p_keeps[i], p_uniqs[i], v_now + p_ttls[i], v_now,
            case when p_dues[i] is null then v_now + p_delays[i] else greatest(p_dues[i], v_now) end
        from generate_series(1, v_number) as i where v_new[i] order by i
        on conflict (id, space) do nothing;
    get diagnostics v_inserted = row_count;
    if v_inserted < (select count(*) from unnest(v_new) as t (new) where t.new) then
        -- Somebody else added one of them a moment ago.
        for i in 1 .. v_number loop
            v_new[i] := v_new[i] and exists (select from paceline.job j where j.seq = v_seqs[i]);
        end loop;
    end if;
    if exists (select from unnest(p_uniqs, p_sizes, p_costs, p_cost_maps) as t (uniq, size, cost, map)
        where t.uniq is not null or t.size is not null or t.cost <> 1 or t.map is not null)
    then
        -- In one order for everybody, so that two adders wait for each other and never both.
        for v_held in select distinct t.queue, t.grp from unnest(v_new, p_queues, p_grps, p_sizes)
            as t (new, queue, grp, size) where t.new and t.size is not null and t.grp is not null order by 1, 2
        loop
            insert into paceline.gate as g (queue, grp) values (v_held.queue, v_held.grp)
                on conflict (queue, grp) do update set passed = g.passed + 1;
        end loop;
        for i in 1 .. v_number loop
            continue when not v_new[i];
            if p_uniqs[i] is not null then
                v_key := paceline.take_unique(p_queues[i], p_uniqs[i], v_seqs[i], v_now + p_ttls[i], v_now);
                if v_key is not null then
                    delete from paceline.job where seq = v_seqs[i];
                    v_new[i] := false;
                    v_ids[i] := v_key;
                    -- The id is free again: the next job of this bulk that wants it gets it, in its own place.
                    select min(k) into v_next from generate_series(i + 1, v_number) as k where p_ids[k] = p_ids[i];
                    if v_next is not null then
                        v_new[v_next] := true;
                        for k in v_next .. v_number loop
                            continue when not v_new[k];
                            v_old := v_seqs[k];
                            v_seqs[k] := nextval('paceline.job_seq');
                            update paceline.job set seq = v_seqs[k],
                                place = case when p_lifos[k] then -v_seqs[k] else v_seqs[k] end where seq = v_old;
                        end loop;
                        insert into paceline.job (seq, space, id, queue, task, grp, data, priority, place, attempts, cost,
                                costs, timeout, backoff, keep, uniq, uniq_until, created_at, due_at)
                            select v_seqs[k], p_space, p_ids[k], p_queues[k], p_tasks[k], p_grps[k], p_datas[k],
                                p_priorities[k], case when p_lifos[k] then -v_seqs[k] else v_seqs[k] end,
                                p_attempts[k], p_costs[k], p_cost_maps[k], p_timeouts[k], p_backoffs[k], p_keeps[k],
                                p_uniqs[k], v_now + p_ttls[k], v_now,
                                case when p_dues[k] is null then v_now + p_delays[k] else greatest(p_dues[k], v_now) end
                            from generate_series(v_next, v_next) as k;
                    end if;
                    continue;
                end if;
            end if;
            if p_costs[i] <> 1 or p_cost_maps[i] is not null then
                v_fault := paceline.misfit(p_space, p_queues[i], p_tasks[i], p_grps[i], p_costs[i], p_cost_maps[i]);
                exit when v_fault is not null;
            end if;
            continue when p_grps[i] is null;
            v_key := p_queues[i] || ':' || p_grps[i];
            if not v_sizes ? v_key then
                v_size := case when p_grps[i] is null then 0 else paceline.group_size(p_queues[i], p_grps[i]) end;
                v_sizes := v_sizes || jsonb_build_object(v_key, v_size);
            end if;
            v_size := (v_sizes ->> v_key)::bigint;
            if p_sizes[i] is not null and v_size >= p_sizes[i] then
                v_fault := jsonb_build_object('error', 'group full', 'group', p_grps[i], 'size', v_size,
                    'max_size', p_sizes[i]);
                exit;
            end if;
            v_sizes := v_sizes || jsonb_build_object(v_key, v_size + 1);
        end loop;
        if v_fault is not null then
            -- Nothing is left behind, and a caller's transaction goes on.
            delete from paceline.uniq u using paceline.job j
                where j.seq = any (v_seqs) and j.uniq is not null and u.queue = j.queue and u.key = j.uniq and u.seq = j.seq;
            delete from paceline.job where seq = any (v_seqs);
            return query select v_fault, null::text[], null::bigint[], null::boolean[], v_now, null::bigint[];
            return;
        end if;
    end if;
    insert into paceline.delayed (queue, due_at, place, grp)
        select j.queue, j.due_at, j.place, j.grp from generate_series(1, v_number) as i
        cross join lateral (select * from paceline.job o where o.seq = v_seqs[i] limit 1) as j
        where v_new[i] and (p_delays[i] > 0 or p_dues[i] is not null) and j.due_at > v_now;
    with came as materialized (
        select i, j.queue, j.task, j.grp, j.priority, j.place, j.cost <> 1 or j.costs is not null as big
        from generate_series(1, v_number) as i
        cross join lateral (select * from paceline.job o where o.seq = v_seqs[i] limit 1) as j
        where v_new[i] and j.due_at <= v_now
    ), lanes as materialized (
        select s.*, paceline.guess_lane(s.queue, s.task, s.grp) as lane
        from (select queue, task, grp, min(i) as first, count(*) as number, min(array[priority, place]) as head,
            array_agg(priority) as priorities, array_agg(place) as places, array_agg(big) as bigs
            from came group by queue, task, grp order by min(i)) as s
    ), waits as (
        insert into paceline.wait (lane, priority, place, big) select l.lane, u.priority, u.place, u.big
            from lanes l, unnest(l.priorities, l.places, l.bigs) as u (priority, place, big)
    )
    insert into paceline.arrival (queue, what, lane, task, grp, number, priority, place)
        select queue, 0, lane, task, grp, number, head[1], head[2] from lanes order by first;
    perform paceline.tell(p_space, (select coalesce(array_agg(distinct 'q' || t.queue), '{}')
        from unnest(v_new, p_queues) as t (new, queue) where t.new), p_late);
    return query select null::jsonb, v_ids, v_seqs, (select array_agg(not n order by place)
        from unnest(v_new) with ordinality as t (n, place)), v_now,
        (select array_agg(distinct j.seq) from unnest(v_new, v_ids) as t (new, id) cross join lateral (
            select o.seq from paceline.job o where o.id = t.id and o.space = p_space limit 1) as j where not t.new);
end $$;

-- Adds jobs of one task that have the same options and leave nothing to be settled but their ids: no delay, no unique
-- key, no maximum size, a cost of 1. In as few statements as can be; when an id is there already, the long way. That is
-- an error here and not a conflict to pass over: looking for those first would cost every job a quarter more.
create function paceline.add_jobs(
    p_space int, p_now bigint, p_ids text[], p_datas bytea[], p_grps text[], p_queue int, p_task text, p_priority bigint,
    p_lifo boolean, p_attempts int, p_backoff text, p_timeout bigint, p_keep bigint, p_late boolean
) returns table (refused jsonb, ids text[], seqs bigint[], existed boolean[], instant bigint, found bigint[])
language plpgsql
/* by key */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_size int[] := array[cardinality(p_ids)];
    v_lane bigint := case when p_grps is null then paceline.guess_lane(p_queue, p_task, null) end;
    v_seqs bigint[];
begin
    begin
        with came as (
            insert into paceline.job (seq, space, id, queue, task, grp, data, priority, place, attempts, cost, timeout,
                    backoff, keep, created_at, due_at)
                select s.seq, p_space, s.id, p_queue, p_task, s.grp, s.data, p_priority,
                    case when p_lifo then -s.seq else s.seq end, p_attempts, 1, p_timeout, p_backoff, p_keep, v_now, v_now
                from (select nextval('paceline.job_seq') as seq, t.* from unnest(p_ids, p_datas, p_grps) as t (id, data, grp)
                    offset 0) as s returning seq, place
        ), waits as (
            insert into paceline.wait (lane, priority, place) select v_lane, p_priority, c.place from came c
                where v_lane is not null
        )
        select array_agg(c.seq) into v_seqs from came c;
    exception when unique_violation then
        return query select * from paceline.insert_jobs(p_space, p_now, p_ids, array_fill(p_queue, v_size),
            array_fill(p_task, v_size), p_datas, p_grps, null, array_fill(0::bigint, v_size), null,
            array_fill(p_priority, v_size), array_fill(p_lifo, v_size), array_fill(p_attempts, v_size),
            array_fill(p_backoff, v_size), array_fill(p_timeout, v_size), array_fill(1::bigint, v_size), null,
            array_fill(p_keep, v_size), null, null, p_late);
        return;
    end;
    if p_grps is null then
        insert into paceline.arrival (queue, what, lane, task, number, priority, place)
            values (p_queue, 0, v_lane, p_task, v_size[1], p_priority,
                case when p_lifo then -v_seqs[v_size[1]] else v_seqs[1] end);
    else
        with lanes as materialized (
            select s.*, paceline.guess_lane(p_queue, p_task, s.grp) as lane
            from (select t.grp, min(t.place) as head, count(*) as number, array_agg(t.place) as places, min(t.i) as first
                from (select u.grp, u.i, case when p_lifo then -u.seq else u.seq end as place
                    from unnest(p_grps, v_seqs) with ordinality as u (grp, seq, i)) as t group by t.grp) as s
        ), waits as (
            insert into paceline.wait (lane, priority, place) select l.lane, p_priority, u.place
                from lanes l, unnest(l.places) as u (place)
        )
        insert into paceline.arrival (queue, what, lane, task, grp, number, priority, place)
            select p_queue, 0, l.lane, p_task, l.grp, l.number, p_priority, l.head from lanes l order by l.first;
    end if;
    if paceline.hears(p_space, p_late) then
        perform pg_notify('paceline.ears', p_space || chr(10) || pg_backend_pid() || chr(10) || 'q' || q.name)
            from paceline.queue q where q.id = p_queue;
    end if;
    ids := p_ids;
    seqs := v_seqs;
    instant := v_now;
    return next;
end $$;

-- Take a unique key for a job; gives the id of the live job that has it. A key whose time is over is free.
create function paceline.take_unique(p_queue int, p_key text, p_seq bigint, p_until bigint, p_now bigint) returns text
language plpgsql as $$
declare
    v_held paceline.uniq;
    v_id text;
begin
    loop
        delete from paceline.uniq where queue = p_queue and key = p_key and until <= p_now;
        insert into paceline.uniq (queue, key, seq, until) values (p_queue, p_key, p_seq, p_until)
            on conflict (queue, key) do nothing;
        if found then return null; end if;
        select * into v_held from paceline.uniq where queue = p_queue and key = p_key;
        select id into v_id from paceline.job where seq = v_held.seq;
        if v_id is not null then return v_id; end if;
    end loop;
end $$;

-- The first limit that never admits a job, as the error it is.
create function paceline.misfit(p_space int, p_queue int, p_task text, p_grp text, p_cost bigint, p_costs jsonb)
returns jsonb language sql stable as $$
    select jsonb_build_object('error', 'never fits', 'limit', f.name, 'cost', f.cost, 'allowed', f.most)
    from (
        select l.name, paceline.cost_under(p_cost, p_costs, l.name) as cost, (part ->> 'max')::bigint as most
        from paceline.lim l join paceline.queue q on q.id = p_queue,
            jsonb_array_elements(paceline.kind_of(l, case when l.by_group then coalesce(p_grp, '') else '' end)) as part
        where l.space = p_space and (l.queues is null or q.name = any (l.queues))
            and (l.tasks is null or p_task = any (l.tasks)) and (p_grp is not null or not l.by_group)
            and part ->> 'kind' = 'rate'
    ) as f where f.cost > f.most order by f.name limit 1
$$;

-- How many jobs of a group have not started: filed, arrived and delayed ones, seen at one moment.
create function paceline.group_size(p_queue int, p_grp text) returns bigint language sql volatile as $$
    select coalesce((select sum(l.waiting) from paceline.grp g, lateral paceline.lanes_of(g.lanes) as l
            where g.queue = p_queue and g.name = p_grp), 0)
        + coalesce((select sum(number) from paceline.arrival where queue = p_queue and what = 0 and grp = p_grp), 0)
        + (select count(*) from paceline.delayed where queue = p_queue and grp = p_grp)
$$;

-- A queue by its name, made when first needed, in a transaction of its own.
create function paceline.queue_of(p_space int, p_name text) returns int language plpgsql as $$
declare
    v_id int;
begin
    select id into v_id from paceline.queue where space = p_space and name = p_name;
    if not found then
        insert into paceline.queue (space, name) values (p_space, p_name) on conflict (space, name) do nothing
            returning id into v_id;
        if found then insert into paceline.line (queue) values (v_id); end if;
        select id into v_id from paceline.queue where space = p_space and name = p_name;
    end if;
    return v_id;
end $$;

create function paceline.space_of(p_name text) returns int language plpgsql as $$
declare
    v_id int;
begin
    loop
        select id into v_id from paceline.space where name = p_name;
        exit when found;
        -- By chance: a program that knew tables which were emptied or dropped must not take these for its own.
        insert into paceline.space (id, name) overriding system value
            values (1 + floor(random() * 2147483646)::int, p_name) on conflict do nothing;
    end loop;
    return v_id;
end $$;
