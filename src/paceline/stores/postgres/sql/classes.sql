-- Which tasks belong together, and the lanes of a queue. Everything here needs the queue's lock.

-- The limits that jobs of a task meet, in order of their names. It costs what the task meets, however many there are, by
-- an index of arrays, which needs bitmaps.
create function paceline.meeting(p_space int, p_queue text, p_task text) returns int[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = on as $$
begin
    return (select coalesce(array_agg(l.id order by l.name), '{}') from (
        select o.id, o.name, o.queues from (select * from paceline.lim u where u.tasks @> array[p_task] offset 0) as o
            where o.space = p_space
        union all
        select o.id, o.name, o.queues from paceline.lim o where o.tasks is null and o.space = p_space) as l
        where l.queues is null or p_queue = any (l.queues));
end $$;

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
    update paceline.class set limits = p_limits, shared = paceline.only(p_limits, false),
        grouped = paceline.only(p_limits, true), paused = p_paused, known_by = p_known
        where id = (select min(id) from paceline.class where queue = p_queue and limits > '{}' and limits < '{0}')
        returning id into v_class;
    if found then return v_class; end if;
    insert into paceline.class (queue, limits, shared, grouped, paused, known_by)
        select p_queue, p_limits, paceline.only(p_limits, false), paceline.only(p_limits, true), p_paused, p_known
        returning id into v_class;
    return v_class;
end $$;

-- Classes that no task belongs to any more stand for nothing, and are the only ones with a number below zero for a limit:
-- they may name limits that were dropped, and are there to be used again. Their lanes are empty and remember the turns of
-- their groups.
create function paceline.retire_classes(p_queue int) returns void language sql as $$
    update paceline.class k set limits = array[-k.id], shared = '{}', grouped = '{}', paused = true, known_by = '{}'
        where k.queue = p_queue and k.limits <> array[-k.id]
        and k.id not in (select t.class from paceline.task t where t.queue = p_queue and t.class is not null)
$$;

-- Of these limits, in their order, those that are per group or not.
create function paceline.only(p_limits int[], p_by_group boolean) returns int[] language sql stable as $$
    select coalesce(array_agg(t.id order by t.place), '{}')
    from unnest(p_limits) with ordinality as t (id, place)
    cross join lateral (select o.by_group from paceline.lim o where o.id = t.id limit 1) as l
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
    update paceline.lane set version = version + 1, state = paceline.ready() where waiting > 0 and state in (paceline.blocked(), paceline.parked())
        and ctid = any (paceline.lane_rows(array(select unnest(lanes) from paceline.grp where queue = p_queue)));
    perform paceline.retire_classes(p_queue);
    perform paceline.forget_lowest(array[p_queue]);
end $$;

-- The waiting jobs of one task go from the lanes of one class to those of another.
create function paceline.move_task(p_queue int, p_task text, p_from int, p_to int) returns void language plpgsql as $$
declare
    v_lane record;
    v_to paceline.lane;
    v_moved int;
    v_number int;
    v_all int := 0;
begin
    for v_lane in select l.*, g.paused, g.classes, g.lanes from paceline.grp g,
        lateral paceline.lane_of(g.lanes[array_position(g.classes, p_from)]) as l
        where g.queue = p_queue and l.waiting > 0 order by l.id
    loop
        v_to := paceline.lane_of(v_lane.lanes[array_position(v_lane.classes, p_to)]);
        if v_to.id is null then
            v_to.id := nextval('paceline.lane_id');
            v_to.waiting := 0;
        end if;
        -- What came after the fold moves along, and is counted when it is taken in.
        with moved as (
            update paceline.wait w set lane = v_to.id from paceline.job j
                where w.lane = v_lane.id and j.seq = abs(w.place) and j.task = p_task returning 1
        )
        select count(*), count(*) - (select coalesce(sum(a.number), 0) from paceline.arrival a
                where a.queue = p_queue and a.what = 0 and a.lane = v_lane.id and a.task = p_task)
            into v_moved, v_number from moved;
        continue when v_moved = 0;
        v_all := v_all + v_number;
        if v_to.version is null then
            insert into paceline.lane (id, queue, class, grp, state, turn, filed, waiting, head_priority, head_place)
                values (v_to.id, p_queue, p_to, v_lane.grp, case when v_lane.paused then paceline.paused() else paceline.ready() end, v_lane.turn,
                    v_lane.filed, v_number, v_lane.head_priority, v_lane.head_place);
            update paceline.grp set classes = classes || p_to, lanes = lanes || v_to.id where id = v_lane.grp;
        else
            update paceline.lane l set version = l.version + 1, waiting = l.waiting + v_number,
                state = case when v_lane.paused then paceline.paused() else paceline.ready() end, turn = v_lane.turn, filed = v_lane.filed,
                head_priority = case when l.waiting = 0 or (v_lane.head_priority, v_lane.head_place)
                    < (l.head_priority, l.head_place) then v_lane.head_priority else l.head_priority end,
                head_place = case when l.waiting = 0 or (v_lane.head_priority, v_lane.head_place)
                    < (l.head_priority, l.head_place) then v_lane.head_place else l.head_place end
                where l.id = v_to.id and l.version >= v_to.version;
        end if;
        update paceline.lane set version = version + 1, waiting = waiting - v_number
            where id = v_lane.id and version >= v_lane.version;
    end loop;
    -- Groups keep what they have waiting.
    perform paceline.save_queue_state(
        paceline.count_lanes(paceline.queue_state_of(p_queue), array[p_from, p_to], array[-v_all, v_all], 1));
end $$;
