-- Which tasks belong together, and the lanes of a queue. Everything here needs the queue's lock.

create function paceline.meeting(p_space int, p_queue text, p_task text) returns int[] language sql stable as $$
    select coalesce(array_agg(l.id order by l.name), '{}') from paceline.lim l where l.space = p_space
        and (l.queues is null or p_queue = any (l.queues)) and (l.tasks is null or p_task = any (l.tasks))
$$;

create function paceline.known_by(p_queue int, p_task text) returns int[] language sql stable as $$
    select coalesce(array_agg(number order by number), '{}') from paceline.taskset
        where queue = p_queue and p_task = any (tasks)
$$;

-- The class of a task, made when first needed.
create function paceline.class_for(p_queue paceline.queue, p_task text) returns int language plpgsql as $$
declare
    v_task paceline.task;
    v_limits int[];
    v_known int[];
    v_class int;
begin
    select * into v_task from paceline.task where queue = p_queue.id and name = p_task;
    if v_task.class is not null then return v_task.class; end if;
    v_limits := paceline.meeting(p_queue.space, p_queue.name, p_task);
    v_known := paceline.known_by(p_queue.id, p_task);
    v_class := paceline.class_of(p_queue.id, v_limits, coalesce(v_task.paused, false), v_known);
    insert into paceline.task (queue, name, class) values (p_queue.id, p_task, v_class)
        on conflict (queue, name) do update set class = excluded.class;
    return v_class;
end $$;

create function paceline.class_of(p_queue int, p_limits int[], p_paused boolean, p_known int[]) returns int
language plpgsql as $$
declare
    v_class int;
begin
    select id into v_class from paceline.class
        where queue = p_queue and limits = p_limits and paused = p_paused and known_by = p_known;
    if found then return v_class; end if;
    insert into paceline.class (queue, limits, shared, grouped, paused, known_by)
        select p_queue, p_limits, paceline.only(p_limits, false), paceline.only(p_limits, true), p_paused, p_known
        returning id into v_class;
    return v_class;
end $$;

-- Of these limits, in their order, those that are per group or not.
create function paceline.only(p_limits int[], p_by_group boolean) returns int[] language sql stable as $$
    select coalesce(array_agg(t.id order by t.place), '{}')
    from unnest(p_limits) with ordinality as t (id, place) join paceline.lim l on l.id = t.id
    where l.by_group = p_by_group
$$;

create function paceline.reclassify_all(p_space int) returns void language plpgsql as $$
declare
    v_queue paceline.queue;
begin
    for v_queue in select * from paceline.queue where space = p_space order by id for no key update loop
        perform paceline.reclassify(v_queue.id);
    end loop;
end $$;

-- Limits, pauses or workers changed: put every task into the class it belongs to now.
create function paceline.reclassify(p_queue int) returns void language plpgsql as $$
declare
    v_queue paceline.queue;
    v_old record;
    v_task record;
    v_class int;
begin
    select * into v_queue from paceline.queue where id = p_queue;
    perform paceline.fold(p_queue);
    for v_old in
        select t.class, count(distinct s.signature) as signatures, min(s.limits) as limits,
            bool_or(t.paused) as paused, min(s.known) as known
        from paceline.task t, lateral (select m.limits, k.known, row (m.limits, t.paused, k.known) as signature
            from paceline.meeting(v_queue.space, v_queue.name, t.name) as m (limits),
            paceline.known_by(p_queue, t.name) as k (known)) as s
        where t.queue = p_queue and t.class is not null group by t.class order by t.class
    loop
        if v_old.signatures = 1 then
            select id into v_class from paceline.class c where c.queue = p_queue and c.limits = v_old.limits
                and c.paused = v_old.paused and c.known_by = v_old.known;
            if v_class is null then
                -- The whole class goes together: no job has to move.
                update paceline.class set limits = v_old.limits, shared = paceline.only(v_old.limits, false),
                    grouped = paceline.only(v_old.limits, true), paused = v_old.paused, known_by = v_old.known
                    where id = v_old.class;
                continue;
            end if;
            continue when v_class = v_old.class;
        end if;
        for v_task in select name, class from paceline.task
            where queue = p_queue and class = v_old.class order by name
        loop
            update paceline.task set class = null where queue = p_queue and name = v_task.name;
            v_class := paceline.class_for(v_queue, v_task.name);
            if v_class <> v_task.class then
                perform paceline.move_task(p_queue, v_task.name, v_task.class, v_class);
            end if;
        end loop;
    end loop;
    update paceline.lane set state = 1 where queue = p_queue and waiting > 0 and state in (2, 3);
    perform paceline.forget_lowest(array[p_queue]);
end $$;

-- The waiting jobs of one task go from the lanes of one class to those of another.
create function paceline.move_task(p_queue int, p_task text, p_from int, p_to int) returns void language plpgsql as $$
declare
    v_lane record;
    v_to bigint;
    v_number int;
begin
    for v_lane in select l.*, g.paused from paceline.lane l join paceline.grp g on g.id = l.grp
        where l.queue = p_queue and l.class = p_from and l.waiting > 0 order by l.id
    loop
        select id into v_to from paceline.lane where grp = v_lane.grp and class = p_to;
        v_to := coalesce(v_to, nextval('paceline.lane_id'));
        update paceline.wait w set lane = v_to from paceline.job j
            where w.lane = v_lane.id and j.seq = abs(w.place) and j.task = p_task;
        get diagnostics v_number = row_count;
        continue when v_number = 0;
        insert into paceline.lane as l (id, queue, class, grp, state, turn, filed, waiting, head_priority, head_place)
            values (v_to, p_queue, p_to, v_lane.grp, case when v_lane.paused then 4 else 1 end, v_lane.turn,
                v_lane.filed, v_number, v_lane.head_priority, v_lane.head_place)
            on conflict (grp, class) do update set waiting = l.waiting + v_number, state = excluded.state,
                turn = excluded.turn, filed = excluded.filed,
                head_priority = case when l.waiting = 0 or (excluded.head_priority, excluded.head_place)
                    < (l.head_priority, l.head_place) then excluded.head_priority else l.head_priority end,
                head_place = case when l.waiting = 0 or (excluded.head_priority, excluded.head_place)
                    < (l.head_priority, l.head_place) then excluded.head_place else l.head_place end;
        update paceline.lane set waiting = waiting - v_number where id = v_lane.id;
    end loop;
end $$;

-- Take in what came without the queue's lock: jobs go into their lanes, freed and opened keys wake lanes up.
-- Only what no earlier look could see is looked at, so that what is dead but not yet vacuumed costs nothing.
create function paceline.fold(p_queue int) returns void language plpgsql as $$
declare
    v_queue paceline.queue;
    v_seen pg_snapshot;
    v_ids bigint[];
    v_whats int[];
    v_lanes bigint[];
    v_tasks text[];
    v_grps text[];
    v_numbers int[];
    v_priorities bigint[];
    v_places bigint[];
    v_lims int[];
    v_name text;
    v_joined int;
    v_wrong record;
begin
    select * into v_queue from paceline.queue where id = p_queue;
    with came as (
        delete from paceline.arrival a where a.queue = p_queue and (v_queue.folded is null
            or a.xid >= pg_snapshot_xmax(v_queue.folded)
            or a.xid in (select pg_snapshot_xip(v_queue.folded) union all select v_queue.folded_by))
        returning a.*
    )
    select pg_current_snapshot(), array_agg(id order by id), array_agg(what order by id), array_agg(lane order by id),
        array_agg(task order by id), array_agg(coalesce(grp, '') order by id), array_agg(number order by id),
        array_agg(priority order by id), array_agg(place order by id), array_agg(lim order by id)
        into v_seen, v_ids, v_whats, v_lanes, v_tasks, v_grps, v_numbers, v_priorities, v_places, v_lims from came;
    if v_ids is null then
        -- Remembering what was looked at is worth a write only once in a while.
        if v_queue.folded is null
            or pg_snapshot_xmax(v_seen)::text::bigint - pg_snapshot_xmin(v_queue.folded)::text::bigint > 64 then
            update paceline.queue set folded = v_seen, folded_by = pg_current_xact_id() where id = p_queue;
        end if;
        return;
    end if;
    if 1 = any (v_whats) or 2 = any (v_whats) then
        perform paceline.look_again(p_queue, t.lim, t.grp, t.what)
            from unnest(v_whats, v_lims, v_grps) as t (what, lim, grp) where t.what > 0;
    end if;
    for v_name in select distinct t.task from unnest(v_tasks) as t (task) where t.task is not null and not exists (
        select from paceline.task k where k.queue = p_queue and k.name = t.task and k.class is not null)
    loop
        perform paceline.class_for(v_queue, v_name);
    end loop;
    insert into paceline.grp (queue, name) select p_queue, t.grp
        from unnest(v_whats, v_grps, v_ids) as t (what, grp, id) where t.what = 0 and not exists (
            select from paceline.grp g where g.queue = p_queue and g.name = t.grp)
        group by t.grp order by min(t.id);
    -- A group that had nothing waiting joins behind everyone.
    with came as (
        select t.grp, min(t.id) as first, sum(t.number) as number
        from unnest(v_whats, v_grps, v_ids, v_numbers) as t (what, grp, id, number) where t.what = 0 group by t.grp
    ), placed as materialized (
        select g.id, came.number, g.waiting = 0 as joins,
            sum((g.waiting = 0)::int) over (order by came.first) as place
        from came cross join lateral (select o.id, o.waiting from paceline.grp o
            where o.queue = p_queue and o.name = came.grp limit 1) as g
    ), changed as (
        update paceline.grp g set waiting = g.waiting + p.number,
            turn = case when p.joins then greatest(g.turn, v_queue.virtual_time + 65536) else g.turn end,
            filed = case when p.joins then v_queue.filings + p.place else g.filed end
        from placed p where g.id = p.id
    )
    select count(*) filter (where joins) into v_joined from placed;
    update paceline.queue set folded = v_seen, folded_by = pg_current_xact_id(), filings = filings + v_joined
        where id = p_queue;
    -- A new head may fit where the old one did not.
    with filed as (
    insert into paceline.lane as l (id, queue, class, grp, state, turn, filed, waiting, head_priority, head_place)
        select case when s.again = 1 and not exists (select from paceline.lane o where o.id = s.lane) then s.lane
            else nextval('paceline.lane_id') end,
            p_queue, s.class, s.grp, case when s.paused then 4 else 1 end, s.turn, s.filed, s.number, s.head[1], s.head[2]
        from (
            select k.class, g.id as grp, g.paused, g.turn, g.filed, min(t.lane) as lane, sum(t.number) as number,
                min(array[t.priority, t.place]) as head,
                row_number() over (partition by min(t.lane) order by min(t.id)) as again
            from unnest(v_whats, v_tasks, v_grps, v_ids, v_numbers, v_priorities, v_places, v_lanes)
                as t (what, task, grp, id, number, priority, place, lane)
            cross join lateral (select o.class from paceline.task o
                where o.queue = p_queue and o.name = t.task limit 1) as k
            cross join lateral (select o.id, o.paused, o.turn, o.filed from paceline.grp o
                where o.queue = p_queue and o.name = t.grp limit 1) as g
            where t.what = 0 group by k.class, g.id, g.paused, g.turn, g.filed
        ) as s
        on conflict (grp, class) do update set waiting = l.waiting + excluded.waiting,
            state = case when excluded.state = 4 then 4 when l.waiting = 0 then 1
                when l.state = 2 and (excluded.head_priority, excluded.head_place) < (l.head_priority, l.head_place)
                then 1 else l.state end,
            turn = excluded.turn, filed = excluded.filed,
            head_priority = case when l.waiting = 0 or (excluded.head_priority, excluded.head_place)
                < (l.head_priority, l.head_place) then excluded.head_priority else l.head_priority end,
            head_place = case when l.waiting = 0 or (excluded.head_priority, excluded.head_place)
                < (l.head_priority, l.head_place) then excluded.head_place else l.head_place end
        returning l.class, l.turn, l.filed, l.state
    )
    update paceline.class k set lowest = s.first[1], lowest_filed = s.first[2]
        from (select class, min(array[turn, filed]) as first from filed where state = 1 group by class) as s
        where k.id = s.class and (k.lowest, k.lowest_filed) > (s.first[1], s.first[2]);
    -- Whoever inserted could not know the lane: classes changed meanwhile, or another one made it first.
    for v_wrong in select distinct t.task, t.grp, t.lane, l.id as right_lane
        from unnest(v_whats, v_tasks, v_grps, v_lanes) as t (what, task, grp, lane)
        cross join lateral (select o.class from paceline.task o where o.queue = p_queue and o.name = t.task limit 1) as k
        cross join lateral (select o.id from paceline.grp o where o.queue = p_queue and o.name = t.grp limit 1) as g
        cross join lateral (select o.id from paceline.lane o where o.class = k.class and o.grp = g.id limit 1) as l
        where t.what = 0 and l.id <> t.lane
    loop
        update paceline.wait w set lane = v_wrong.right_lane from paceline.job j
            where w.lane = v_wrong.lane and j.seq = abs(w.place) and j.task = v_wrong.task
            and coalesce(j.grp, '') = v_wrong.grp;
    end loop;
end $$;

-- Take in a job that has not started: into a lane that the next claim folds in, or aside until it is due.
create function paceline.arrive(p_job paceline.job, p_due_at bigint, p_now bigint, p_again boolean) returns void
language plpgsql as $$
declare
    v_lane bigint;
begin
    if p_due_at > p_now then
        insert into paceline.delayed (queue, due_at, place, grp, again)
            values (p_job.queue, p_due_at, p_job.place, p_job.grp, p_again);
        return;
    end if;
    v_lane := paceline.guess_lane(p_job.queue, p_job.task, p_job.grp);
    insert into paceline.wait (lane, priority, place, again, big)
        values (v_lane, p_job.priority, p_job.place, p_again, p_job.cost <> 1 or p_job.costs is not null);
    insert into paceline.arrival (queue, what, lane, task, grp, number, priority, place)
        values (p_job.queue, 0, v_lane, p_job.task, p_job.grp, 1, p_job.priority, p_job.place);
end $$;

-- The lane that a job will probably be in; only the queue's lock makes it sure. Where there is none yet, everybody
-- guesses the same number, so that the one who makes the lane has nothing to move.
create function paceline.guess_lane(p_queue int, p_task text, p_grp text) returns bigint language plpgsql stable as $$
declare
    v_class int;
    v_lane bigint;
begin
    select k.class into v_class from paceline.task k where k.queue = p_queue and k.name = p_task;
    if v_class is not null then
        select l.id into v_lane from paceline.grp g join paceline.lane l on l.grp = g.id and l.class = v_class
            where g.queue = p_queue and g.name = coalesce(p_grp, '');
        if v_lane is not null then return v_lane; end if;
    end if;
    return -abs(hashtextextended(coalesce(p_grp, '') || chr(10) || coalesce(v_class::text, chr(10) || p_task), p_queue) / 2)
        - 1;
end $$;

-- Take a job that has not started out of its queue. Needs the lock, and everything folded in.
create function paceline.leave(p_job paceline.job) returns void language plpgsql as $$
declare
    v_due bigint;
    v_lane paceline.lane;
begin
    select p.due_at into v_due from paceline.past p where p.seq = p_job.seq;
    delete from paceline.delayed where queue = p_job.queue and due_at = coalesce(v_due, p_job.due_at)
        and place = p_job.place;
    if found then return; end if;
    select l.* into v_lane from paceline.task k, paceline.grp g, paceline.lane l
        where k.queue = p_job.queue and k.name = p_job.task and g.queue = p_job.queue
        and g.name = coalesce(p_job.grp, '') and l.grp = g.id and l.class = k.class;
    delete from paceline.wait where lane = v_lane.id and priority = p_job.priority and place = p_job.place;
    if not found then
        raise exception 'job % is in no lane', p_job.id;
    end if;
    update paceline.grp set waiting = waiting - 1 where id = v_lane.grp;
    update paceline.lane set waiting = waiting - 1, state = case when state = 2 and waiting > 1 then 1 else state end
        where id = v_lane.id;
    if v_lane.state = 2 then perform paceline.forget_lowest(array[p_job.queue]); end if;
end $$;
