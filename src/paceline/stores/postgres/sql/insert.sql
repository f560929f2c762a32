-- Step 1, insert. Only inserts: no row that a claim locks is changed, so a caller's open transaction blocks no claim.

-- New jobs, as parallel arrays. What all of them have in common is given once.
create type paceline.new_jobs as (
    ids text[], queues int[], tasks text[], datas bytea[], grps text[], sizes bigint[], delays bigint[], dues bigint[],
    priorities bigint[], lifos boolean[], attempts int[], backoffs text[], timeouts bigint[], costs bigint[],
    cost_maps jsonb[], keeps bigint[], uniqs text[], ttls bigint[]
);

-- The same as rows.
create function paceline.each_new(j paceline.new_jobs) returns table (n int, id text, queue int, task text, data bytea,
    grp text, size bigint, delay bigint, due bigint, priority bigint, lifo boolean, attempts int, backoff text, timeout bigint,
    cost bigint, costs jsonb, keep bigint, uniq text, ttl bigint) language sql stable as $$
    select t.n::int, t.id, case when t.n > f.queues then f.queue else t.queue end,
        case when t.n > f.tasks then f.task else t.task end, t.data, t.grp, t.size,
        case when t.n > f.delays then f.delay else t.delay end, t.due,
        case when t.n > f.priorities then f.priority else t.priority end,
        case when t.n > f.lifos then f.lifo else t.lifo end, case when t.n > f.manys then f.many else t.many end,
        case when t.n > f.backoffs then f.backoff else t.backoff end,
        case when t.n > f.timeouts then f.timeout else t.timeout end, case when t.n > f.costs then f.cost else t.cost end,
        t.map, case when t.n > f.keeps then f.keep else t.keep end, t.uniq, t.ttl
    from (select j.queues[1] as queue, cardinality(j.queues) as queues, j.tasks[1] as task, cardinality(j.tasks) as tasks,
            j.delays[1] as delay, cardinality(j.delays) as delays, j.priorities[1] as priority,
            cardinality(j.priorities) as priorities, j.lifos[1] as lifo, cardinality(j.lifos) as lifos,
            j.attempts[1] as many, cardinality(j.attempts) as manys, j.backoffs[1] as backoff,
            cardinality(j.backoffs) as backoffs, j.timeouts[1] as timeout, cardinality(j.timeouts) as timeouts,
            j.costs[1] as cost, cardinality(j.costs) as costs, j.keeps[1] as keep, cardinality(j.keeps) as keeps offset 0) as f
    cross join unnest(j.ids, j.queues, j.tasks, j.datas, j.grps, j.sizes, j.delays, j.dues, j.priorities, j.lifos,
        j.attempts, j.backoffs, j.timeouts, j.costs, j.cost_maps, j.keeps, j.uniqs, j.ttls) with ordinality
        as t (id, queue, task, data, grp, size, delay, due, priority, lifo, many, backoff, timeout, cost, map, keep, uniq,
            ttl, n)
$$;

-- Add jobs. For each it answers the job that is there now, and whether it was there before. Ids and unique keys are
-- settled by the indexes (the second adder waits for the first one's transaction), sizes of groups under a lock that only
-- adders take. `refused` is set when nothing was stored.
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
    j paceline.new_jobs := row (p_ids, p_queues, p_tasks, p_datas, p_grps, p_sizes, p_delays, p_dues, p_priorities, p_lifos,
        p_attempts, p_backoffs, p_timeouts, p_costs, p_cost_maps, p_keeps, p_uniqs, p_ttls);
    v_number int := cardinality(p_ids);
    s record;
begin
    perform paceline.expire(p_space, v_now);
    select p_ids as ids, array_agg(nextval('paceline.job_seq')) as seqs, array_fill(true, array[v_number]) as new,
        null::jsonb as refused into s from generate_series(1, v_number);
    if paceline.store_jobs(p_space, v_now, j, s.seqs, null) < v_number then
        -- An id that is there already, or twice in this bulk, gives the job that has it.
        s.new := array(select exists (select from paceline.job o where o.seq = t.seq)
            from unnest(s.seqs) with ordinality as t (seq, n) order by t.n);
    end if;
    if p_uniqs is not null or p_sizes is not null or p_cost_maps is not null or array_remove(p_costs, 1) <> '{}' then
        select * into s from paceline.settle(p_space, v_now, j, s.seqs, s.new);
        if s.refused is not null then
            return query select s.refused, null::text[], null::bigint[], null::boolean[], v_now, null::bigint[];
            return;
        end if;
    end if;
    perform paceline.arrive(case when true = all (s.new) then s.seqs else array(select t.seq
        from unnest(s.seqs, s.new) with ordinality as t (seq, new, n) where t.new order by t.n) end, null, null, v_now);
    if true = any (s.new) then
        perform paceline.notify(p_space, array(select distinct 'q' || t.queue from unnest(p_queues) as t (queue)), p_late);
    end if;
    if true = all (s.new) then
        return query select null::jsonb, null::text[], s.seqs, null::boolean[], v_now, null::bigint[];
        return;
    end if;
    return query select null::jsonb, s.ids, s.seqs, array(select not t.new
        from unnest(s.new) with ordinality as t (new, n) order by t.n), v_now,
        (select array_agg(distinct o.seq) from unnest(s.new, s.ids) as t (new, id) cross join lateral (
            select u.seq from paceline.job u where u.id = t.id and u.space = p_space limit 1) as o where not t.new);
end $$;

-- Write the bodies of new jobs, or of one of them; gives how many. What has an id that is there already is passed over.
create function paceline.store_jobs(p_space int, p_now bigint, j paceline.new_jobs, p_seqs bigint[], p_only int) returns int
language plpgsql as $$
declare
    v_number int;
begin
    insert into paceline.job (seq, space, id, queue, task, grp, data, priority, place, attempts, cost, costs, timeout,
            backoff, keep, uniq, uniq_until, created_at, due_at)
        select p_seqs[e.n], p_space, e.id, e.queue, e.task, e.grp, e.data, e.priority,
            case when e.lifo then -p_seqs[e.n] else p_seqs[e.n] end, e.attempts, e.cost, e.costs, e.timeout, e.backoff, e.keep,
            e.uniq, p_now + e.ttl, p_now, case when e.due is null then p_now + e.delay else greatest(e.due, p_now) end
        from paceline.each_new(j) as e where p_only is null or e.n = p_only
        on conflict (id, space) do nothing;
    get diagnostics v_number = row_count;
    return v_number;
end $$;

-- Unique keys, costs and sizes of groups, job by job in the order given; `refused` says why nothing is stored.
create function paceline.settle(p_space int, p_now bigint, j paceline.new_jobs, p_seqs bigint[], p_new boolean[],
    out ids text[], out seqs bigint[], out new boolean[], out refused jsonb) language plpgsql as $$
declare
    e record;
    v_holder text;
    v_size bigint;
    v_sizes jsonb := '{}';
begin
    ids := j.ids;
    seqs := p_seqs;
    new := p_new;
    -- In one order for everybody, so that two adders wait for each other and never both.
    for e in select distinct u.queue, u.grp from paceline.each_new(j) as u
        where new[u.n] and u.size is not null and u.grp is not null order by 1, 2
    loop
        insert into paceline.group_lock as g (queue, grp) values (e.queue, e.grp)
            on conflict (queue, grp) do update set passed = g.passed + 1;
    end loop;
    for e in select * from paceline.each_new(j) order by n loop
        continue when not new[e.n];
        if e.uniq is not null then
            v_holder := paceline.take_unique(e.queue, e.uniq, seqs[e.n], p_now + e.ttl, p_now);
            if v_holder is not null then
                delete from paceline.job where seq = seqs[e.n];
                new[e.n] := false;
                ids[e.n] := v_holder;
                select r.seqs, r.new into seqs, new from paceline.pass_on_id(p_space, p_now, j, seqs, new, e.n) as r;
                continue;
            end if;
        end if;
        if e.cost <> 1 or e.costs is not null then
            refused := paceline.misfit(p_space, e.queue, e.task, e.grp, e.cost, e.costs);
            exit when refused is not null;
        end if;
        continue when e.grp is null;
        v_size := coalesce((v_sizes ->> (e.queue || ':' || e.grp))::bigint, paceline.group_size(e.queue, e.grp));
        if v_size >= e.size then
            refused := jsonb_build_object('error', 'group full', 'group', e.grp, 'size', v_size, 'max_size', e.size);
            exit;
        end if;
        v_sizes := v_sizes || jsonb_build_object(e.queue || ':' || e.grp, v_size + 1);
    end loop;
    if refused is null then return; end if;
    -- Nothing is left behind, and a caller's transaction goes on.
    delete from paceline.uniq u using paceline.job o
        where o.seq = any (seqs) and o.uniq is not null and u.queue = o.queue and u.key = o.uniq and u.seq = o.seq;
    delete from paceline.job where seq = any (seqs);
end $$;

-- A job of a bulk was not stored, so its id is free: the next one that wants it gets it, in its own place.
create function paceline.pass_on_id(p_space int, p_now bigint, j paceline.new_jobs, inout seqs bigint[],
    inout new boolean[], p_place int) language plpgsql as $$
declare
    v_next int := (select min(k) from generate_series(p_place + 1, cardinality(new)) as k where j.ids[k] = j.ids[p_place]);
    v_old bigint;
begin
    if v_next is null then return; end if;
    new[v_next] := true;
    for k in v_next .. cardinality(new) loop
        continue when not new[k];
        v_old := seqs[k];
        seqs[k] := nextval('paceline.job_seq');
        update paceline.job set seq = seqs[k], place = case when place < 0 then -seqs[k] else seqs[k] end where seq = v_old;
    end loop;
    perform paceline.store_jobs(p_space, p_now, j, seqs, v_next);
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
        if found then insert into paceline.queue_state (queue) values (v_id); end if;
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
