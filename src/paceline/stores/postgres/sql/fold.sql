-- What came to a queue goes into its lanes. Everything here but `arrive` needs the queue's lock.

-- File delayed jobs whose time has come, at most so many; returns how many. One after the other, as they are due.
create function paceline.promote_due(p_queue int, p_now bigint, p_most int) returns int language plpgsql as $$
declare
    v_number int;
    v_seqs bigint[];
    v_dues bigint[];
    v_agains boolean[];
begin
    with due as (
        delete from paceline.delayed d where (d.queue, d.due_at, d.place) in (
            select o.queue, o.due_at, o.place from paceline.delayed o where o.queue = p_queue and o.due_at <= p_now
            order by o.due_at, o.place limit p_most)
        returning d.*
    )
    select array_agg(abs(d.place) order by d.due_at, d.place), array_agg(d.due_at order by d.due_at, d.place),
        array_agg(d.again order by d.due_at, d.place), count(*) into v_seqs, v_dues, v_agains, v_number from due d;
    if v_number > 0 then perform paceline.arrive(v_seqs, v_dues, v_agains, p_now); end if;
    if v_number > 0 then perform paceline.fold(p_queue); end if;
    return v_number;
end $$;

-- Take in what came without the queue's lock: jobs go into their lanes, freed and opened keys wake lanes up.
-- Only what no earlier fold could see is read, so that what is dead but not yet vacuumed costs nothing, and no more than
-- `p_most` at once: what one snapshot could see and could not be taken in is taken in by the next folds, before anything
-- newer. False when some of that is left.
create function paceline.fold(p_queue int, p_most int) returns boolean language plpgsql as $$
declare
    s paceline.queue_state := paceline.queue_state_of(p_queue);
    v_goes_on boolean := s.folding is not null;
    v_seen pg_snapshot := coalesce(s.folding, pg_current_snapshot());
    v_by xid8 := coalesce(s.folding_by, pg_current_xact_id_if_assigned());
    a paceline.arrived := paceline.next_arrivals(s, v_seen, p_most);
    v_all boolean := coalesce(cardinality(a.ids), 0) < p_most;
begin
    if v_all then
        -- Remembering what was seen is worth a write only once in a while.
        if a.ids is null and not v_goes_on and s.folded is not null
            and pg_snapshot_xmax(v_seen)::text::bigint - pg_snapshot_xmin(s.folded)::text::bigint <= 64 then
            return true;
        end if;
        select null, null, null, null, v_seen, coalesce(v_by, pg_current_xact_id())
            into s.folding, s.folding_by, s.folding_xid, s.folding_id, s.folded, s.folded_by;
    else
        select v_seen, coalesce(v_by, pg_current_xact_id()), t.xid, t.id
            into s.folding, s.folding_by, s.folding_xid, s.folding_id from unnest(a.xids, a.ids) as t (xid, id)
            order by t.xid desc, t.id desc limit 1;
    end if;
    if paceline.key_freed() = any (a.whats) or paceline.key_opened() = any (a.whats) then
        perform paceline.look_again(p_queue, t.lim, t.grp, t.what)
            from unnest(a.whats, a.lims, a.grps) as t (what, lim, grp) where t.what > paceline.jobs_came();
        select n.low_class, n.low_turn, n.low_filed, n.version into s.low_class, s.low_turn, s.low_filed, s.version
            from paceline.queue_state_of(p_queue) as n;
    end if;
    if paceline.jobs_came() = any (a.whats) then s := paceline.file_arrivals(s, a); end if;
    perform paceline.save_queue_state(s);
    -- What came after an unfinished fold is folded now.
    if v_all and v_goes_on then perform paceline.fold(p_queue, p_most); end if;
    return v_all;
end $$;

-- Take arrivals out that no earlier fold could see, by (xid, id): first what was under way then, then what began later.
create function paceline.next_arrivals(s paceline.queue_state, p_seen pg_snapshot, p_most int) returns paceline.arrived
language plpgsql as $$
declare
    a paceline.arrived;
begin
    with found as materialized (
        select e.ctid from (
            (select o.ctid, o.xid, o.id from (
                select x.xid from pg_snapshot_xip(s.folded) as x (xid) union select s.folded_by order by 1) as x
                cross join lateral (select u.ctid, u.xid, u.id from paceline.arrival u
                    where u.queue = s.queue and u.xid = x.xid and (s.folding_xid is null
                        or x.xid > s.folding_xid or (x.xid = s.folding_xid and u.id > s.folding_id))
                    order by u.xid, u.id limit p_most) as o limit p_most)
            union all
            (select u.ctid, u.xid, u.id from paceline.arrival u
                where u.queue = s.queue
                    and u.xid >= coalesce(greatest(pg_snapshot_xmax(s.folded), s.folding_xid), '0'::xid8)
                    and (s.folding_xid is null or u.xid > s.folding_xid or u.id > s.folding_id)
                    and (s.folding is null or pg_visible_in_snapshot(u.xid, p_seen))
                order by u.xid, u.id limit p_most)) as e
        order by e.xid, e.id limit p_most
    ), came as (
        delete from paceline.arrival u using found f where u.ctid = f.ctid returning u.*
    )
    select array_agg(id order by id), array_agg(xid order by id), array_agg(what order by id), array_agg(lane order by id),
        array_agg(task order by id), array_agg(coalesce(grp, '') order by id), array_agg(number order by id),
        array_agg(priority order by id), array_agg(place order by id), array_agg(lim order by id)
        into a.ids, a.xids, a.whats, a.lanes, a.tasks, a.grps, a.numbers, a.priorities, a.places, a.lims from came;
    return a;
end $$;

-- Whether nobody waits in a lane before this place. What a lane says of its head is a bound: it is that of the last start.
create function paceline.leads(p_lane bigint, p_head_priority bigint, p_head_place bigint, p_priority bigint, p_place bigint)
returns boolean language sql stable as $$
    select not exists (select from paceline.wait w where w.lane = p_lane
        and (w.priority, w.place) >= (p_head_priority, p_head_place) and (w.priority, w.place) < (p_priority, p_place))
$$;

-- Jobs that came go into their lanes; gives the state of the queue then.
create function paceline.file_arrivals(s paceline.queue_state, a paceline.arrived) returns paceline.queue_state
language plpgsql as $$
declare
    v_queue paceline.queue;
    v_name text;
    f paceline.lane_filing;
    v_placed record;
begin
    if exists (select from unnest(a.tasks) as t (task) where t.task is not null and not exists (
        select from paceline.task k where k.queue = s.queue and k.name = t.task and k.class is not null))
    then
        select * into v_queue from paceline.queue where id = s.queue;
        for v_name in select distinct t.task from unnest(a.tasks) as t (task) where t.task is not null order by 1 loop
            perform paceline.class_for(v_queue, v_name);
        end loop;
    end if;
    f := paceline.load_filing(s, a);
    select * into v_placed from paceline.place_arrivals(s, f);
    s := v_placed.s;
    f := v_placed.f;
    perform paceline.write_filing(s, f);
    if true = any (f.moves) then perform paceline.move_misfiled(s.queue, a); end if;
    return s;
end $$;

-- For each class and group that jobs came to: what came, and the group and lane that are there. Groups in the order in
-- which they came.
create function paceline.load_filing(s paceline.queue_state, a paceline.arrived) returns paceline.lane_filing
language plpgsql as $$
declare
    f paceline.lane_filing;
begin
    select array_agg(e.class), array_agg(e.g), array_agg(g.id), array_agg(e.grp), array_agg(g.paused), array_agg(g.id is null),
        array_agg(l.id), array_agg(e.lane), array_agg(e.lane <> e.other),
        array_agg(l.id is null and e.again = 1 and not exists (select from paceline.lane o where o.id = e.lane)),
        array_agg(e.number), array_agg(e.head[1]), array_agg(e.head[2]), array_agg(n.last[2]), array_agg(n.last[1]),
        array_agg(coalesce(n.size, 0)), array_agg(l.ctid), array_agg(l.state),
        array_agg(l.waiting = 0 or l.state = paceline.blocked()
            and paceline.leads(l.id, l.head_priority, l.head_place, e.head[1], e.head[2])),
        array_agg(l.waiting), array_agg(l.head_priority), array_agg(l.head_place)
        into f.classes, f.g, f.grps, f.names, f.paused, f.fresh, f.lanes, f.guesses, f.moves, f.free, f.numbers, f.priorities,
        f.places, f.turns, f.filed, f.sizes, f.rows, f.states, f.opens, f.waiting, f.head_priorities, f.head_places
        from (select u.class, u.grp, min(u.lane) as lane, max(u.lane) as other, sum(u.number)::int as number,
                min(array[u.priority, u.place]) as head, dense_rank() over (order by min(u.first))::int as g,
                row_number() over (partition by min(u.lane) order by min(u.id)) as again,
                row_number() over (partition by u.grp order by min(u.id)) as nth
            from (select k.class, t.*, min(t.id) over (partition by t.grp) as first
                from unnest(a.whats, a.tasks, a.grps, a.ids, a.numbers, a.priorities, a.places, a.lanes)
                    as t (what, task, grp, id, number, priority, place, lane)
                cross join lateral (select o.class from paceline.task o
                    where o.queue = s.queue and o.name = t.task limit 1) as k where t.what = paceline.jobs_came()) as u
            group by u.class, u.grp order by min(u.first), min(u.id)) as e
        left join lateral (select * from paceline.grp o where o.queue = s.queue and o.name = e.grp limit 1) as g on true
        left join lateral (select max(array[y.filed, y.turn]) as last, sum(y.waiting) as size
            from unnest(case when e.nth = 1 then g.lanes end) as u (id)
            cross join lateral paceline.newest_lane(u.id) as y) as n on true
        left join lateral (select o.ctid, o.id, o.state, o.waiting, o.head_priority, o.head_place from paceline.lane o
            where o.id = g.lanes[array_position(g.classes, e.class)] order by o.version desc limit 1) as l on true;
    return f;
end $$;

-- Where lanes stand after jobs came to them: their groups' turns, their states and heads.
create function paceline.place_arrivals(inout s paceline.queue_state, inout f paceline.lane_filing) language plpgsql as $$
declare
    v_g int := 0;
    v_turn bigint;
    v_filed bigint;
begin
    s := paceline.count_lanes(s, f.classes, f.numbers, 1);
    for i in 1 .. cardinality(f.g) loop
        if f.g[i] <> v_g then
            v_g := f.g[i];
            if f.fresh[i] then f.grps[i] := nextval('paceline.grp_id'); end if;
            v_turn := coalesce(f.turns[i], 0);
            v_filed := coalesce(f.filed[i], 0);
            if f.sizes[i] = 0 then
                -- A group that had nothing waiting joins behind everyone.
                v_turn := greatest(v_turn, s.virtual_time + paceline.one());
                s.filings := s.filings + 1;
                s.groups := s.groups + 1;
                v_filed := s.filings;
            end if;
        else
            f.grps[i] := f.grps[i - 1];
        end if;
        f.turns[i] := v_turn;
        f.filed[i] := v_filed;
        if f.lanes[i] is null then
            f.lanes[i] := case when f.free[i] then f.guesses[i] else nextval('paceline.lane_id') end;
            f.states[i] := paceline.ready();
        else
            -- A new head may fit where the old one did not.
            if f.opens[i] then f.states[i] := paceline.ready(); end if;
            if f.waiting[i] > 0 and (f.priorities[i], f.places[i]) >= (f.head_priorities[i], f.head_places[i]) then
                f.priorities[i] := f.head_priorities[i];
                f.places[i] := f.head_places[i];
            end if;
        end if;
        f.moves[i] := f.moves[i] or f.guesses[i] <> f.lanes[i];
        if f.paused[i] then f.states[i] := paceline.paused(); end if;
        if f.states[i] = paceline.ready() then s := paceline.lowered(s, f.classes[i], v_turn, v_filed); end if;
    end loop;
end $$;

create function paceline.write_filing(s paceline.queue_state, f paceline.lane_filing) returns void language plpgsql as $$
begin
    update paceline.lane l set version = l.version + 1, waiting = l.waiting + t.number, state = t.state, turn = t.turn,
        filed = t.filed, head_priority = t.priority, head_place = t.place
        from unnest(f.rows, f.numbers, f.states, f.turns, f.filed, f.priorities, f.places)
            as t (row, number, state, turn, filed, priority, place) where l.ctid = t.row;
    if array_position(f.rows, null) is null then return; end if;
    insert into paceline.lane (id, queue, class, grp, state, turn, filed, waiting, head_priority, head_place)
        select t.id, s.queue, t.class, t.grp, t.state, t.turn, t.filed, t.number, t.priority, t.place
        from unnest(f.rows, f.lanes, f.classes, f.grps, f.states, f.turns, f.filed, f.numbers, f.priorities, f.places)
            as t (row, id, class, grp, state, turn, filed, number, priority, place) where t.row is null;
    insert into paceline.grp as g (id, queue, name, classes, lanes)
        select t.grp, s.queue, t.name, array_agg(t.class), array_agg(t.id)
        from unnest(f.rows, f.grps, f.names, f.classes, f.lanes) as t (row, grp, name, class, id) where t.row is null
        group by t.grp, t.name order by t.grp
        on conflict (id) do update set classes = g.classes || excluded.classes, lanes = g.lanes || excluded.lanes;
end $$;

-- An adder could not know the lane: classes changed meanwhile, or another one made it first.
create function paceline.move_misfiled(p_queue int, a paceline.arrived) returns void language plpgsql as $$
declare
    v_wrong record;
begin
    for v_wrong in select distinct t.task, t.grp, t.lane, g.lanes[array_position(g.classes, k.class)] as right_lane
        from unnest(a.whats, a.tasks, a.grps, a.lanes) as t (what, task, grp, lane)
        cross join lateral (select o.class from paceline.task o where o.queue = p_queue and o.name = t.task limit 1) as k
        cross join lateral (select o.classes, o.lanes from paceline.grp o
            where o.queue = p_queue and o.name = t.grp limit 1) as g
        where t.what = paceline.jobs_came() and t.lane <> g.lanes[array_position(g.classes, k.class)]
    loop
        update paceline.wait w set lane = v_wrong.right_lane from paceline.job j
            where w.lane = v_wrong.lane and j.seq = abs(w.place) and j.task = v_wrong.task
            and coalesce(j.grp, '') = v_wrong.grp;
    end loop;
end $$;

-- Take in everything that has come by now.
create function paceline.fold(p_queue int) returns void language plpgsql as $$
begin
    while not paceline.fold(p_queue, 1000) loop
    end loop;
end $$;

-- Take in jobs that have not started: into lanes that the next claim folds in, or aside until they are due. `p_dues`: when,
-- null for what was said when they were added; `p_agains`: which of them have an earlier life, null for none.
create function paceline.arrive(p_seqs bigint[], p_dues bigint[], p_agains boolean[], p_now bigint) returns void
language plpgsql as $$
begin
    with job as materialized (
        select t.n, j.queue, j.task, j.grp, j.priority, j.place, coalesce(t.due, j.due_at) as due,
            coalesce(t.again, false) as again, j.cost <> 1 or j.costs is not null as big
        from unnest(p_seqs, p_dues, p_agains) with ordinality as t (seq, due, again, n)
        cross join lateral (select * from paceline.job o where o.seq = t.seq limit 1) as j
    ), later as (
        insert into paceline.delayed (queue, due_at, place, grp, again)
            select j.queue, j.due, j.place, j.grp, j.again from job j where j.due > p_now
    ), lane as materialized (
        select s.*, coalesce(g.lane, paceline.unmade_lane(s.queue, k.class, s.task, s.grp)) as lane
        from (select j.queue, j.task, j.grp, min(j.n) as first, array_agg(j.priority) as priorities,
                array_agg(j.place) as places, array_agg(j.again) as agains, array_agg(j.big) as bigs
            from job j where j.due <= p_now group by j.queue, j.task, j.grp) as s
        left join lateral (select o.class from paceline.task o where o.queue = s.queue and o.name = s.task limit 1) as k on true
        left join lateral (select o.lanes[array_position(o.classes, k.class)] as lane from paceline.grp o
            where o.queue = s.queue and o.name = coalesce(s.grp, '') limit 1) as g on true
    ), waits as (
        insert into paceline.wait (lane, priority, place, again, big)
            select l.lane, u.priority, u.place, u.again, u.big
            from lane l, unnest(l.priorities, l.places, l.agains, l.bigs) as u (priority, place, again, big)
    )
    insert into paceline.arrival (queue, what, lane, task, grp, number, priority, place)
        select l.queue, 0, l.lane, l.task, l.grp, cardinality(l.places), h.priority, h.place from lane l
        cross join lateral (select u.priority, u.place from unnest(l.priorities, l.places) as u (priority, place)
            order by 1, 2 limit 1) as h order by l.first;
end $$;

-- The number of a lane that was not made yet: everybody guesses the same, so that the one who makes it has nothing to move.
create function paceline.unmade_lane(p_queue int, p_class int, p_task text, p_grp text) returns bigint
language sql immutable as $$
    select -abs(hashtextextended(coalesce(p_grp, '') || chr(10) || coalesce(p_class::text, chr(10) || p_task), p_queue) / 2) - 1
$$;

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
    return paceline.unmade_lane(p_queue, v_class, p_task, p_grp);
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
        state = case when state = paceline.blocked() and waiting > 1 then paceline.ready() else state end
        where id = v_lane.id and version >= v_lane.version;
    perform paceline.count_left(array[v_lane.id], array[1]);
    if v_lane.state = paceline.blocked() then perform paceline.forget_lowest(array[p_job.queue]); end if;
end $$;

-- Jobs left these lanes, so many each: their queues have less waiting, and groups perhaps nothing.
create function paceline.count_left(p_lanes bigint[], p_numbers int[]) returns void language plpgsql as $$
declare
    v_left record;
    s paceline.queue_state;
begin
    for v_left in
        select l.queue, array_agg(l.class) as classes, array_agg(t.number) as numbers,
            count(distinct l.grp) filter (where not r.waits) as groups
        from unnest(p_lanes, p_numbers) as t (id, number)
        cross join lateral (select * from paceline.newest_lane(t.id)) as l
        cross join lateral (select exists (select from paceline.grp g cross join lateral paceline.lanes_of(g.lanes) as o
            where g.id = l.grp and o.waiting > 0) as waits) as r
        group by l.queue
    loop
        s := paceline.count_lanes(paceline.queue_state_of(v_left.queue), v_left.classes, v_left.numbers, -1);
        s.groups := s.groups - v_left.groups;
        perform paceline.save_queue_state(s);
    end loop;
end $$;
