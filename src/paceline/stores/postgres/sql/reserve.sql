-- Room that is kept for jobs too big to start now.

-- Jobs that a limit is kept free for go first; reservations that no longer hold are given up.
create function paceline.serve_reserved(inout c paceline.choosing) language plpgsql as $$
declare
    v_kept record;
    m paceline.meter;
    v_job paceline.job;
    h paceline.head;
    v_place int;
    v_opens bigint;
    v_keys record;
    v record;
begin
    for v_kept in select k.id from paceline.meter k join paceline.lim l on l.id = k.lim
        where l.space = c.space and k.reserved_by is not null order by k.reserved_at
    loop
        select * into m from paceline.meter where id = v_kept.id order by version desc limit 1 for no key update;
        if m.reserved_by is null then
            perform paceline.give_up(c.space, m);
            continue;
        end if;
        if m.reserved_permit and c.now < m.reserved_deadline then
            if m.reserved_until <= c.now then
                update paceline.meter set version = version + 1, reserved_until = m.reserved_deadline
                    where id = m.id and version >= m.version;
            end if;
            continue;
        end if;
        h := null;
        select * into v_job from paceline.job where space = c.space and id = m.reserved_by;
        if found and not m.reserved_permit then h := paceline.head_if_first(v_job); end if;
        if h.lane is null or c.now >= m.reserved_deadline or not paceline.still_reserves(h, v_job, c.now) then
            perform paceline.give_up(c.space, m);
            continue;
        end if;
        select * into v_keys from paceline.keys_for(h, v_job.cost, v_job.costs);
        perform paceline.save_reservation(k.id, v_job.id, false, t.cost, c.now)
            from unnest(v_keys.meters, v_keys.taken) with ordinality as t (id, cost, place),
            lateral paceline.meter_at(t.id) as k
            where k.reserved_by is null and paceline.opens_at(k, t.cost) > c.now;
        v_opens := paceline.max_opens(v_keys.meters, v_keys.taken);
        update paceline.meter set version = version + 1,
            reserved_until = case when v_opens > c.now then least(v_opens, reserved_deadline) else reserved_deadline end
            where id = m.id and version >= m.version;
        v_place := array_position(c.queues, h.queue);
        if v_opens <= c.now and v_place = any (c.active) and cardinality(c.started) < c.slots
            and exists (select from paceline.class k where k.id = h.class and not k.paused
                and (c.knowns[v_place] is null or c.knowns[v_place] = any (k.known_by)))
            and not exists (select from paceline.meters(v_keys.meters) as k where k.reserved_by <> v_job.id)
        then
            select * into v from paceline.consider(c, h, v_job);
            c := v.c;
            if v.verdict = 1 then
                c := paceline.start_jobs(c, paceline.turn_of(h, v_place), '{1}', v_job, v.meters, v.taken);
                c.wakes := c.wakes || '*'::text;
            end if;
        end if;
    end loop;
end $$;

-- A head alone, as a pass would choose it.
create function paceline.turn_of(h paceline.head, p_place int) returns paceline.turns language plpgsql as $$
declare
    t paceline.turns;
begin
    select array[h.class], array[p_place], array[n.virtual_time], array[l.id], array[l.ctid], array[1], array[l.grp],
        array[h.grp_name], array[l.turn], array[l.filed], array[true], array[1], array[l.turn], array[h.priority],
        array[h.place], array[w.ctid], array[h.again]
        into t.k_id, t.k_place, t.k_time, t.l_id, t.l_row, t.l_k, t.l_grp, t.l_name, t.l_turn, t.l_filed, t.l_several,
        t.a_lane, t.a_tag, t.a_priority, t.a_place, t.a_row, t.a_again
        from paceline.queue_state_of(h.queue) as n
        cross join lateral (select o.ctid, o.* from paceline.lane o where o.id = h.lane order by o.version desc limit 1) as l
        cross join lateral (select o.ctid from paceline.wait o where o.lane = h.lane and o.priority = h.priority
            and o.place = h.place limit 1) as w;
    return t;
end $$;

-- The lane of a waiting job, if the job is its head.
create function paceline.head_if_first(p_job paceline.job) returns paceline.head language plpgsql as $$
declare
    h paceline.head;
begin
    -- A queue that is not locked may change under our eyes: its own claims decide. What came to it is not filed yet, so its
    -- lanes' heads are looked for among all that wait.
    select l.id, l.queue, k.id, l.grp, g.name, k.shared, k.grouped, w.priority, w.place, w.again into h
        from paceline.task t, paceline.grp g,
            lateral paceline.lane_of(g.lanes[array_position(g.classes, t.class)]) as l, paceline.class k,
            lateral (select * from paceline.wait o where o.lane = l.id order by o.priority, o.place limit 1) as w
        where t.queue = p_job.queue and t.name = p_job.task and g.queue = p_job.queue
            and g.name = coalesce(p_job.grp, '') and k.id = t.class
            and w.place = p_job.place;
    return h;
end $$;

-- A reservation lasts while its job is next in its lane and nothing but its size keeps it from starting.
create function paceline.still_reserves(h paceline.head, p_job paceline.job, p_now bigint) returns boolean
language plpgsql as $$
declare
    v_keys record;
begin
    if exists (select from paceline.queue where id = h.queue and paused)
        or exists (select from paceline.class where id = h.class and paused)
        or (paceline.lane_of(h.lane)).state = paceline.paused() then
        return false;
    end if;
    select * into v_keys from paceline.keys_for(h, p_job.cost, p_job.costs);
    return not exists (select from unnest(v_keys.meters, v_keys.taken) as t (id, cost)
        cross join lateral paceline.meter_at(t.id) as m
        where paceline.opens_at(m, t.cost) > p_now and not paceline.lacks_only_room(m, t.cost, p_now));
end $$;

-- Room that was kept is free again; lanes of queues that another transaction has locked are notified by an arrival. Notified
-- in both ways, a lane would be ready although it was filed elsewhere meanwhile.
create function paceline.give_up(p_space int, m paceline.meter) returns void language plpgsql as $$
declare
    v_locked int[];
begin
    update paceline.meter set version = version + 1, reserved_by = null, reserved_permit = false
        where id = m.id and version >= m.version;
    if m.grp <> '' then
        v_locked := array(select q.id from paceline.queue q where q.space = p_space for no key update skip locked);
        perform paceline.look_again(t.id, m.lim, m.grp, 2) from unnest(v_locked) as t (id);
        insert into paceline.arrival (queue, what, lim, grp)
            select g.queue, 2, m.lim, m.grp from paceline.grp g join paceline.queue q on q.id = g.queue
            where g.name = m.grp and q.space = p_space and not g.queue = any (v_locked);
    end if;
end $$;

-- Only its size is in the way of this head: nobody else starts where it lacks room, for one window at most.
create function paceline.keep_room(h paceline.head, p_job paceline.job, p_meters bigint[], p_taken bigint[],
    p_now bigint, p_reserved boolean) returns void language plpgsql as $$
declare
    v_own bigint;
begin
    if p_reserved and exists (select from paceline.meters(p_meters) as m where m.reserved_by = p_job.id) then
        -- Room is kept for it already: every claim considers it first.
        perform paceline.file_until(h.lane, paceline.max_opens(p_meters, p_taken));
        return;
    end if;
    perform paceline.save_reservation(m.id, p_job.id, false, t.cost, p_now)
        from unnest(p_meters, p_taken) with ordinality as t (id, cost, place), lateral paceline.meter_at(t.id) as m
        where paceline.opens_at(m, t.cost) > p_now;
    select coalesce(max(paceline.opens_at(m, t.cost)), 0) into v_own
        from unnest(p_meters, p_taken) as t (id, cost), lateral paceline.meter_at(t.id) as m where m.grp <> '';
    if v_own > p_now then perform paceline.file_until(h.lane, v_own); end if;
end $$;
