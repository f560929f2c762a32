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
    update paceline.lane set version = version + 1, state = 1 where waiting > 0 and state in (2, 3)
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
        if v_to.version is null then
            insert into paceline.lane (id, queue, class, grp, state, turn, filed, waiting, head_priority, head_place)
                values (v_to.id, p_queue, p_to, v_lane.grp, case when v_lane.paused then 4 else 1 end, v_lane.turn,
                    v_lane.filed, v_number, v_lane.head_priority, v_lane.head_place);
            update paceline.grp set classes = classes || p_to, lanes = lanes || v_to.id where id = v_lane.grp;
        else
            update paceline.lane l set version = l.version + 1, waiting = l.waiting + v_number,
                state = case when v_lane.paused then 4 else 1 end, turn = v_lane.turn, filed = v_lane.filed,
                head_priority = case when l.waiting = 0 or (v_lane.head_priority, v_lane.head_place)
                    < (l.head_priority, l.head_place) then v_lane.head_priority else l.head_priority end,
                head_place = case when l.waiting = 0 or (v_lane.head_priority, v_lane.head_place)
                    < (l.head_priority, l.head_place) then v_lane.head_place else l.head_place end
                where l.id = v_to.id and l.version >= v_to.version;
        end if;
        update paceline.lane set version = version + 1, waiting = waiting - v_number
            where id = v_lane.id and version >= v_lane.version;
    end loop;
end $$;

-- Take in what came without the queue's lock: jobs go into their lanes, freed and opened keys wake lanes up.
-- Only what no earlier look could see is looked at, so that what is dead but not yet vacuumed costs nothing, and no more
-- than `p_most` at once: what one look could see and could not take in is taken in by the next ones, before anything
-- newer. False when some of that is left.
create function paceline.fold(p_queue int, p_most int) returns boolean language plpgsql as $$
declare
    v_line paceline.line := paceline.line_of(p_queue);
    v_goes_on boolean := v_line.folding is not null;
    v_seen pg_snapshot := coalesce(v_line.folding, pg_current_snapshot());
    v_by xid8 := coalesce(v_line.folding_by, pg_current_xact_id_if_assigned());
    v_ids bigint[];
    v_xids xid8[];
    v_whats int[];
    v_lanes bigint[];
    v_tasks text[];
    v_grps text[];
    v_numbers int[];
    v_priorities bigint[];
    v_places bigint[];
    v_lims int[];
    v_all boolean;
begin
    -- Ordered by (xid, id): first what was under way at the last look, then what began later.
    with found as materialized (
        select s.ctid from (
            (select a.ctid, a.xid, a.id from (
                select x.xid from pg_snapshot_xip(v_line.folded) as x (xid) union select v_line.folded_by order by 1) as x
                cross join lateral (select o.ctid, o.xid, o.id from paceline.arrival o
                    where o.queue = p_queue and o.xid = x.xid and (v_line.folding_xid is null
                        or x.xid > v_line.folding_xid or (x.xid = v_line.folding_xid and o.id > v_line.folding_id))
                    order by o.xid, o.id limit p_most) as a limit p_most)
            union all
            (select o.ctid, o.xid, o.id from paceline.arrival o
                where o.queue = p_queue
                    and o.xid >= coalesce(greatest(pg_snapshot_xmax(v_line.folded), v_line.folding_xid), '0'::xid8)
                    and (v_line.folding_xid is null or o.xid > v_line.folding_xid or o.id > v_line.folding_id)
                    and (not v_goes_on or pg_visible_in_snapshot(o.xid, v_seen))
                order by o.xid, o.id limit p_most)) as s
        order by s.xid, s.id limit p_most
    ), came as (
        delete from paceline.arrival a using found f where a.ctid = f.ctid returning a.*
    )
    select array_agg(id order by id), array_agg(xid order by id), array_agg(what order by id), array_agg(lane order by id),
        array_agg(task order by id), array_agg(coalesce(grp, '') order by id), array_agg(number order by id),
        array_agg(priority order by id), array_agg(place order by id), array_agg(lim order by id)
        into v_ids, v_xids, v_whats, v_lanes, v_tasks, v_grps, v_numbers, v_priorities, v_places, v_lims from came;
    v_all := coalesce(cardinality(v_ids), 0) < p_most;
    if v_all then
        v_line.folding := null;
        v_line.folding_by := null;
        v_line.folding_xid := null;
        v_line.folding_id := null;
        -- Remembering what was looked at is worth a write only once in a while.
        if v_ids is null and not v_goes_on and v_line.folded is not null
            and pg_snapshot_xmax(v_seen)::text::bigint - pg_snapshot_xmin(v_line.folded)::text::bigint <= 64 then
            return true;
        end if;
        v_line.folded := v_seen;
        v_line.folded_by := coalesce(v_by, pg_current_xact_id());
    else
        v_line.folding := v_seen;
        v_line.folding_by := coalesce(v_by, pg_current_xact_id());
        select t.xid, t.id into v_line.folding_xid, v_line.folding_id from unnest(v_xids, v_ids) as t (xid, id)
            order by t.xid desc, t.id desc limit 1;
    end if;
    if v_ids is not null then
        if 1 = any (v_whats) or 2 = any (v_whats) then
            perform paceline.look_again(p_queue, t.lim, t.grp, t.what)
                from unnest(v_whats, v_lims, v_grps) as t (what, lim, grp) where t.what > 0;
            select n.low_class, n.low_turn, n.low_filed, n.version
                into v_line.low_class, v_line.low_turn, v_line.low_filed, v_line.version from paceline.line_of(p_queue) as n;
        end if;
        if 0 = any (v_whats) then
            v_line := paceline.file_arrivals(v_line, v_ids, v_whats, v_lanes, v_tasks, v_grps, v_numbers, v_priorities,
                v_places);
        end if;
    end if;
    update paceline.line set version = version + 1, filings = v_line.filings, waiting = v_line.waiting,
        low_class = v_line.low_class, low_turn = v_line.low_turn, low_filed = v_line.low_filed,
        folded = v_line.folded, folded_by = v_line.folded_by, folding = v_line.folding, folding_by = v_line.folding_by,
        folding_xid = v_line.folding_xid, folding_id = v_line.folding_id
        where queue = p_queue and version >= v_line.version;
    -- What came after an unfinished look is looked at now.
    if v_all and v_goes_on then
        perform paceline.fold(p_queue, p_most);
    end if;
    return v_all;
end $$;

-- Whether nobody waits in a lane before this place. What a lane says of its head is a bound: it is that of the last start.
create function paceline.leads(p_lane bigint, p_head_priority bigint, p_head_place bigint, p_priority bigint, p_place bigint)
returns boolean language sql stable as $$
    select not exists (select from paceline.wait w where w.lane = p_lane
        and (w.priority, w.place) >= (p_head_priority, p_head_place) and (w.priority, w.place) < (p_priority, p_place))
$$;

-- The same for the usual case of an idle queue, in two statements: one arrival came, for the only lane of its group.
-- False when it is something else: nothing was done.
create function paceline.fold_one(p_queue int) returns boolean language plpgsql as $$
declare
    a record;
begin
    select o.ctid as row, o.number, o.priority, o.place, l.ctid as lane, n.ctid as line, n.filings,
        l.waiting = 0 as first, l.waiting = 0 or (o.priority, o.place) < (l.head_priority, l.head_place) as lowers, h.opens,
        case when l.waiting = 0 then greatest(l.turn, n.virtual_time + 65536) else l.turn end as turn,
        case when l.waiting = 0 then n.filings + 1 else l.filed end as filed,
        o.what = 0 and n.folding is null and n.folded is not null and not g.paused and cardinality(g.lanes) = 1
            and g.lanes[1] = o.lane and g.classes[1] = k.class and (m.low is null or l.state <> 1 and not h.opens
                or (case when l.waiting = 0 then greatest(l.turn, n.virtual_time + 65536) else l.turn end,
                    case when l.waiting = 0 then n.filings + 1 else l.filed end)
                    >= (n.low_turn[m.low], n.low_filed[m.low])) as usual, count(*) over () as arrivals
        into a from (select t.ctid, t.* from paceline.line t where t.queue = p_queue order by t.version desc limit 1) as n
        cross join lateral (select t.ctid, t.* from paceline.arrival t where t.queue = p_queue
            and t.xid >= coalesce(pg_snapshot_xmin(n.folded), '0'::xid8) order by t.xid, t.id limit 2) as o
        left join lateral (select t.class from paceline.task t where t.queue = p_queue and t.name = o.task limit 1)
            as k on true
        left join lateral (select * from paceline.grp t where t.queue = p_queue and t.name = coalesce(o.grp, '') limit 1)
            as g on true
        left join lateral (select t.ctid, t.* from paceline.lane t where t.id = o.lane order by t.version desc limit 1)
            as l on true
        left join lateral (select l.waiting = 0 or l.state = 2
            and paceline.leads(l.id, l.head_priority, l.head_place, o.priority, o.place) as opens offset 0) as h on true
        left join lateral (select array_position(n.low_class, k.class) as low offset 0) as m on true limit 1;
    if a.arrivals is distinct from 1 or a.usual is not true then return false; end if;
    with gone as (
        delete from paceline.arrival where ctid = a.row
    ), filed as (
        update paceline.lane u set version = u.version + 1, waiting = u.waiting + a.number, turn = a.turn, filed = a.filed,
            state = case when a.opens then 1 else u.state end,
            head_priority = case when a.lowers then a.priority else u.head_priority end,
            head_place = case when a.lowers then a.place else u.head_place end where u.ctid = a.lane
    )
    update paceline.line u set version = u.version + 1, waiting = u.waiting + a.number,
        filings = u.filings + a.first::int where u.ctid = a.line;
    return true;
end $$;

-- Jobs that came go into their lanes; gives the line as it is then.
create function paceline.file_arrivals(p_line paceline.line, p_ids bigint[], p_whats int[], p_lanes bigint[],
    p_tasks text[], p_grps text[], p_numbers int[], p_priorities bigint[], p_places bigint[]) returns paceline.line
language plpgsql as $$
declare
    v_queue paceline.queue;
    v_name text;
    -- for each class and group, groups in the order in which they came
    s_class int[]; s_g int[]; s_grp bigint[]; s_name text[]; s_paused boolean[]; s_lane bigint[]; s_guess bigint[];
    s_other bigint[]; s_free boolean[]; s_fresh boolean[];
    s_number int[]; s_priority bigint[]; s_place bigint[]; s_turn bigint[]; s_filed bigint[]; s_size bigint[];
    s_row tid[]; s_state int[]; s_opens boolean[]; s_waiting int[]; s_head_priority bigint[]; s_head_place bigint[];
    v_g int := 0;
    v_turn bigint;
    v_filed bigint;
    v_new boolean := false;
    v_moves boolean := false;
    m int;
    v_wrong record;
begin
    if exists (select from unnest(p_tasks) as t (task) where t.task is not null and not exists (
        select from paceline.task k where k.queue = p_line.queue and k.name = t.task and k.class is not null))
    then
        select * into v_queue from paceline.queue where id = p_line.queue;
        for v_name in select distinct t.task from unnest(p_tasks) as t (task) where t.task is not null order by 1 loop
            perform paceline.class_for(v_queue, v_name);
        end loop;
    end if;
    select array_agg(s.class), array_agg(s.g), array_agg(g.id), array_agg(s.grp), array_agg(g.paused),
        array_agg(l.id), array_agg(s.lane), array_agg(s.other),
        array_agg(l.id is null and s.again = 1 and not exists (select from paceline.lane o where o.id = s.lane)), array_agg(s.number), array_agg(s.head[1]), array_agg(s.head[2]),
        array_agg(n.last[2]), array_agg(n.last[1]), array_agg(coalesce(n.size, 0)), array_agg(l.ctid),
        array_agg(l.state), array_agg(l.waiting = 0 or l.state = 2
            and paceline.leads(l.id, l.head_priority, l.head_place, s.head[1], s.head[2])),
        array_agg(l.waiting), array_agg(l.head_priority), array_agg(l.head_place)
        into s_class, s_g, s_grp, s_name, s_paused, s_lane, s_guess, s_other, s_free, s_number, s_priority, s_place, s_turn, s_filed,
        s_size, s_row, s_state, s_opens, s_waiting, s_head_priority, s_head_place
        from (select u.class, u.grp, min(u.lane) as lane, max(u.lane) as other, sum(u.number)::int as number,
                min(array[u.priority, u.place]) as head, dense_rank() over (order by min(u.first))::int as g,
                row_number() over (partition by min(u.lane) order by min(u.id)) as again,
                row_number() over (partition by u.grp order by min(u.id)) as nth
            from (select k.class, t.*, min(t.id) over (partition by t.grp) as first
                from unnest(p_whats, p_tasks, p_grps, p_ids, p_numbers, p_priorities, p_places, p_lanes)
                    as t (what, task, grp, id, number, priority, place, lane)
                cross join lateral (select o.class from paceline.task o
                    where o.queue = p_line.queue and o.name = t.task limit 1) as k where t.what = 0) as u
            group by u.class, u.grp order by min(u.first), min(u.id)) as s
        left join lateral (select * from paceline.grp o where o.queue = p_line.queue and o.name = s.grp limit 1)
            as g on true
        left join lateral (select max(array[e.filed, e.turn]) as last, sum(e.waiting) as size
            from unnest(case when s.nth = 1 then g.lanes end) as u (id) cross join lateral (
                select o.filed, o.turn, o.waiting from paceline.lane o where o.id = u.id
                order by o.version desc limit 1) as e) as n on true
        left join lateral (select o.ctid, o.id, o.state, o.waiting, o.head_priority, o.head_place from paceline.lane o
            where o.id = g.lanes[array_position(g.classes, s.class)] order by o.version desc limit 1) as l on true;
    for i in 1 .. cardinality(s_g) loop
        if s_g[i] <> v_g then
            v_g := s_g[i];
            s_fresh[i] := s_grp[i] is null;
            if s_fresh[i] then s_grp[i] := nextval('paceline.grp_id'); end if;
            v_turn := coalesce(s_turn[i], 0);
            v_filed := coalesce(s_filed[i], 0);
            if s_size[i] = 0 then
                -- A group that had nothing waiting joins behind everyone.
                v_turn := greatest(v_turn, p_line.virtual_time + 65536);
                p_line.filings := p_line.filings + 1;
                v_filed := p_line.filings;
            end if;
        else
            s_fresh[i] := s_fresh[i - 1];
            s_grp[i] := s_grp[i - 1];
        end if;
        s_turn[i] := v_turn;
        s_filed[i] := v_filed;
        p_line.waiting := p_line.waiting + s_number[i];
        if s_lane[i] is null then
            v_new := true;
            s_lane[i] := case when s_free[i] then s_guess[i] else nextval('paceline.lane_id') end;
            v_moves := v_moves or s_guess[i] <> s_lane[i] or s_other[i] <> s_lane[i];
            s_state[i] := case when s_paused[i] then 4 else 1 end;
        else
            v_moves := v_moves or s_guess[i] <> s_lane[i] or s_other[i] <> s_lane[i];
            -- A new head may fit where the old one did not.
            if s_opens[i] then s_state[i] := 1; end if;
            if s_waiting[i] > 0 and (s_priority[i], s_place[i]) >= (s_head_priority[i], s_head_place[i]) then
                s_priority[i] := s_head_priority[i];
                s_place[i] := s_head_place[i];
            end if;
            if s_paused[i] then s_state[i] := 4; end if;
        end if;
        if s_state[i] = 1 then
            m := array_position(p_line.low_class, s_class[i]);
            if m is not null and (v_turn, v_filed) < (p_line.low_turn[m], p_line.low_filed[m]) then
                p_line.low_turn[m] := v_turn;
                p_line.low_filed[m] := v_filed;
            end if;
        end if;
    end loop;
    update paceline.lane l set version = l.version + 1, waiting = l.waiting + t.number, state = t.state, turn = t.turn,
        filed = t.filed, head_priority = t.priority, head_place = t.place
        from unnest(s_row, s_number, s_state, s_turn, s_filed, s_priority, s_place)
            as t (row, number, state, turn, filed, priority, place) where l.ctid = t.row;
    if v_new then
        insert into paceline.lane (id, queue, class, grp, state, turn, filed, waiting, head_priority, head_place)
            select t.id, p_line.queue, t.class, t.grp, t.state, t.turn, t.filed, t.number, t.priority, t.place
            from unnest(s_row, s_lane, s_class, s_grp, s_state, s_turn, s_filed, s_number, s_priority, s_place)
                as t (row, id, class, grp, state, turn, filed, number, priority, place) where t.row is null;
        insert into paceline.grp (id, queue, name, classes, lanes)
            select t.grp, p_line.queue, t.name, array_agg(t.class), array_agg(t.id)
            from unnest(s_fresh, s_grp, s_name, s_class, s_lane) as t (fresh, grp, name, class, id) where t.fresh
            group by t.grp, t.name order by t.grp;
        for i in 1 .. cardinality(s_g) loop
            if s_row[i] is null and not s_fresh[i] then
                update paceline.grp set classes = classes || s_class[i], lanes = lanes || s_lane[i] where id = s_grp[i];
            end if;
        end loop;
    end if;
    if not v_moves then return p_line; end if;
    -- Whoever inserted could not know the lane: classes changed meanwhile, or another one made it first.
    for v_wrong in select distinct t.task, t.grp, t.lane, g.lanes[array_position(g.classes, k.class)] as right_lane
        from unnest(p_whats, p_tasks, p_grps, p_lanes) as t (what, task, grp, lane)
        cross join lateral (select o.class from paceline.task o
            where o.queue = p_line.queue and o.name = t.task limit 1) as k
        cross join lateral (select o.classes, o.lanes from paceline.grp o
            where o.queue = p_line.queue and o.name = t.grp limit 1) as g
        where t.what = 0 and t.lane <> g.lanes[array_position(g.classes, k.class)]
    loop
        update paceline.wait w set lane = v_wrong.right_lane from paceline.job j
            where w.lane = v_wrong.lane and j.seq = abs(w.place) and j.task = v_wrong.task
            and coalesce(j.grp, '') = v_wrong.grp;
    end loop;
    return p_line;
end $$;

-- Take in everything that has come by now.
create function paceline.fold(p_queue int) returns void language plpgsql as $$
begin
    while not paceline.fold(p_queue, 1000) loop
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
create function paceline.guess_lane(p_queue int, p_task text, p_grp text) returns bigint language plpgsql stable
/* by key */ as $$
declare
    v_class int;
    v_lane bigint;
begin
    select k.class into v_class from paceline.task k where k.queue = p_queue and k.name = p_task;
    if v_class is not null then
        select g.lanes[array_position(g.classes, v_class)] into v_lane from paceline.grp g
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
    select l.* into v_lane from paceline.task k, paceline.grp g,
        lateral paceline.lane_of(g.lanes[array_position(g.classes, k.class)]) as l
        where k.queue = p_job.queue and k.name = p_job.task and g.queue = p_job.queue
        and g.name = coalesce(p_job.grp, '');
    delete from paceline.wait where lane = v_lane.id and priority = p_job.priority and place = p_job.place;
    if not found then
        raise exception 'job % is in no lane', p_job.id;
    end if;
    update paceline.lane set version = version + 1, waiting = waiting - 1,
        state = case when state = 2 and waiting > 1 then 1 else state end
        where id = v_lane.id and version >= v_lane.version;
    update paceline.line set version = version + 1, waiting = waiting - 1 where queue = p_job.queue
        and version >= (select o.version from paceline.line o where o.queue = p_job.queue order by o.version desc limit 1);
    if v_lane.state = 2 then perform paceline.forget_lowest(array[p_job.queue]); end if;
end $$;
