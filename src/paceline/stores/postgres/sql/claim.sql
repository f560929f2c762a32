-- Step 2, claim: take back dead leases, take in what came, then start as many jobs as all limits allow.
-- Locks, in this order: queues, leases, limits, group keys, each sorted. The clock is read when they are held.

create type paceline.choosing as (
    space int, now bigint, budget int, also bigint[], also_names text[], room bigint, most bigint, needs_room bigint,
    worker text, lease bigint, skipped bigint[], started bigint[], fences bigint[], wakes text[], reserved boolean,
    opened bigint, -- all lanes that were blocked until then are ready
    stuck_queues int[], stuck_until bigint[], -- queues whose next job waits for a limit that the worker brings along
    queues int[], active int[], turn int -- places of the queues that may still give a job, and whose go it is
);

create type paceline.head as (lane bigint, queue int, class int, grp bigint, grp_name text, shared int[], grouped int[],
    priority bigint, place bigint, again boolean);

-- The keys that a job of a lane is charged to, with what it takes from each: the shared ones, then the group's own.
create function paceline.keys_for(h paceline.head, p_cost bigint, p_costs jsonb, out meters bigint[], out taken bigint[])
language plpgsql as $$
declare
    m paceline.meter;
    v_lim record;
begin
    meters := '{}';
    taken := '{}';
    for v_lim in select l.id, l.name, l.by_group from unnest(h.shared || h.grouped) with ordinality as t (id, place)
        join paceline.lim l on l.id = t.id order by t.place
    loop
        continue when v_lim.by_group and h.grp_name = '';
        m := paceline.meter_of(v_lim.id, case when v_lim.by_group then h.grp_name else '' end);
        meters := meters || m.id;
        taken := taken || paceline.cost_under(p_cost, p_costs, v_lim.name);
    end loop;
end $$;

-- When the shared limits of a class admit a start of cost 1.
create function paceline.class_opens(p_shared int[]) returns bigint language plpgsql stable as $$
declare
    m paceline.meter;
    v_at bigint := 0;
begin
    for m in select * from paceline.keys_of(p_shared, '') loop
        v_at := greatest(v_at, paceline.opens_at(m, 1));
        if m.reserved_by is not null then v_at := greatest(v_at, m.reserved_until); end if;
    end loop;
    return v_at;
end $$;

create function paceline.max_opens(p_meters bigint[], p_taken bigint[]) returns bigint language sql stable as $$
    select coalesce(max(paceline.opens_at(m, t.cost)), 0)
    from unnest(p_meters, p_taken) as t (id, cost), lateral paceline.meter_at(t.id) as m
$$;

-- File a lane as blocked until an instant, or parked when only a finish can help.
create function paceline.file_until(p_lane bigint, p_until bigint) returns void language plpgsql as $$
declare
    v_lane paceline.lane;
    v_name text;
    m paceline.meter;
begin
    if p_until >= 4611686018427387904 then
        perform paceline.file_lane(p_lane, 3, null);
        v_lane := paceline.lane_of(p_lane);
        select g.name into v_name from paceline.grp g where g.id = v_lane.grp;
        for m in select k.* from paceline.class c cross join lateral paceline.keys_of(c.grouped, v_name) as k
            where c.id = v_lane.class and v_name <> '' and not v_lane.queue = any (k.parked)
        loop
            update paceline.meter set version = version + 1, parked = parked || v_lane.queue
                where id = m.id and version >= m.version;
        end loop;
    else
        perform paceline.file_lane(p_lane, 2, p_until);
    end if;
end $$;

-- The next lane of a queue by turn, with its head: of the classes that the worker can run and whose limits are open.
create function paceline.next_head(p_queue int, p_known int, p_now bigint) returns paceline.head language plpgsql as $$
declare
    h paceline.head;
begin
    select l.id, p_queue, c.id, l.grp, g.name, c.shared, c.grouped, w.priority, w.place, w.again into h
        from paceline.line_of(p_queue) as n cross join paceline.class c
        cross join lateral (select * from paceline.lane o where o.class = c.id and o.state = 1 and o.waiting > 0
            and (o.turn, o.filed) >= (coalesce(n.low_turn[array_position(n.low_class, c.id)], 0),
                coalesce(n.low_filed[array_position(n.low_class, c.id)], 0)) order by o.turn, o.filed limit 1) as l
        cross join lateral (select * from paceline.wait o where o.lane = l.id
            and (o.priority, o.place) >= (l.head_priority, l.head_place) order by o.priority, o.place limit 1) as w
        join paceline.grp g on g.id = l.grp
        where c.queue = p_queue and not c.paused and (p_known is null or p_known = any (c.known_by))
            and (c.shared = '{}' or paceline.class_opens(c.shared) <= p_now)
        order by l.turn, l.filed, w.priority, w.place limit 1;
    return h;
end $$;

-- Whether a job starts: 1 yes, 0 stop here, null refused: it was filed where it belongs.
create function paceline.consider(inout c paceline.choosing, h paceline.head, p_job paceline.job, out verdict int,
    out meters bigint[], out taken bigint[]) language plpgsql as $$
declare
    v_cost bigint := paceline.cost_under(p_job.cost, p_job.costs, '');
    v_closed bigint;
    v_misfit record;
    v_brought record;
    m paceline.meter;
begin
    select k.meters, k.taken into meters, taken from paceline.keys_for(h, p_job.cost, p_job.costs) as k;
    select coalesce(max(greatest(paceline.opens_at(k, 1),
        case when c.reserved and k.reserved_by is not null and k.reserved_by <> p_job.id then k.reserved_until else 0 end)), 0)
        into v_closed from paceline.meters(meters) as k where k.grp <> '';
    if v_closed > c.now then
        -- Its group may start nothing at all now, whatever it costs and whoever asks.
        c.budget := c.budget - 1;
        perform paceline.file_until(h.lane, v_closed);
        return;
    end if;
    if c.most is not null and v_cost > c.most then
        c.skipped := c.skipped || h.lane;
        perform paceline.file_lane(h.lane, 3, null);
        c.budget := c.budget - 1;
        return;
    end if;
    if c.room is not null and v_cost > c.room then
        c.needs_room := v_cost;
        verdict := 0;
        return;
    end if;
    if p_job.cost <> 1 or p_job.costs is not null then
        select l.name, t.cost, paceline.most(k.parts) as most into v_misfit
            from unnest(meters, taken) with ordinality as t (id, cost, place)
            cross join lateral paceline.meter_at(t.id) as k join paceline.lim l on l.id = k.lim
            where not paceline.fits(k, t.cost) order by t.place limit 1;
        if found then
            perform paceline.leave(p_job);
            c.wakes := c.wakes || paceline.end_waiting(p_job, 5, c.now, format(
                'NeverFits: the job costs %s, but limit %s never allows more than %s', v_misfit.cost,
                paceline.quoted(v_misfit.name), v_misfit.most), false);
            c.budget := c.budget - 1;
            return;
        end if;
    end if;
    if c.also <> '{}' then
        -- Limits that only the worker brings along; those the job meets itself decide as its own.
        select max(greatest(paceline.opens_at(k, t.cost),
                case when k.reserved_by <> p_job.id then k.reserved_until else 0 end)) as until,
            bool_and(paceline.fits(k, t.cost)) as fits into v_brought
            from (select u.id, paceline.cost_under(p_job.cost, p_job.costs, u.name) as cost
                from unnest(c.also, c.also_names) as u (id, name) where not u.id = any (meters)) as t
            cross join lateral paceline.meter_at(t.id) as k;
        if not v_brought.fits then
            c.skipped := c.skipped || h.lane;
            perform paceline.file_lane(h.lane, 3, null);
            c.budget := c.budget - 1;
            return;
        end if;
        if v_brought.until > c.now then
            c.stuck_queues := c.stuck_queues || h.queue;
            c.stuck_until := c.stuck_until || v_brought.until;
            verdict := 0;
            return;
        end if;
    end if;
    if paceline.max_opens(meters, taken) <= c.now then
        verdict := 1;
        return;
    end if;
    c.budget := c.budget - 1;
    perform paceline.keep_room(h, p_job, meters, taken, c.now, c.reserved);
    c.reserved := true;
end $$;

create function paceline.quoted(p_name text) returns text language sql immutable as $$
    select case when strpos(p_name, '''') > 0 and strpos(p_name, '"') = 0 then '"' || p_name || '"'
        else '''' || replace(replace(p_name, '\', '\\'), '''', '\''') || '''' end
$$;

-- Only its size is in the way of this head: nobody else starts where it lacks room, for one window at most.
create function paceline.keep_room(h paceline.head, p_job paceline.job, p_meters bigint[], p_taken bigint[],
    p_now bigint, p_reserved boolean) returns void language plpgsql as $$
declare
    v_own bigint;
begin
    if p_reserved and exists (select from paceline.meters(p_meters) as m where m.reserved_by = p_job.id) then
        -- Room is kept for it already: every claim looks at it first.
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

-- Move a job from its lane to active, charge every key, and give its group the next turn.
create function paceline.start_job(inout c paceline.choosing, h paceline.head, p_job paceline.job, p_meters bigint[],
    p_taken bigint[]) language plpgsql as $$
declare
    v_meters bigint[] := p_meters;
    v_taken bigint[] := p_taken;
    v_past paceline.past;
    v_turn bigint;
    v_line paceline.line := paceline.line_of(h.queue);
    v_guard bigint;
    m paceline.meter;
    v_names text[];
    v_full bigint[];
begin
    for i in 1 .. coalesce(cardinality(c.also), 0) loop
        if not c.also[i] = any (v_meters) then
            v_meters := v_meters || c.also[i];
            v_taken := v_taken || paceline.cost_under(p_job.cost, p_job.costs, c.also_names[i]);
        end if;
    end loop;
    delete from paceline.wait where lane = h.lane and priority = h.priority and place = h.place;
    v_turn := (paceline.lane_of(h.lane)).turn;
    update paceline.line set version = version + 1, virtual_time = greatest(virtual_time, v_turn), filings = filings + 1,
        waiting = waiting - 1, lease_from = least(lease_from, c.now + c.lease)
        where queue = h.queue and version >= v_line.version returning * into v_line;
    v_turn := greatest(v_turn, v_line.virtual_time) + 65536 * case when p_job.costs is null then p_job.cost else 1 end;
    update paceline.lane l set version = l.version + 1, turn = v_turn, filed = v_line.filings,
        waiting = l.waiting - (l.id = h.lane)::int,
        head_priority = case when l.id = h.lane then h.priority else l.head_priority end,
        head_place = case when l.id = h.lane then h.place else l.head_place end
        where l.ctid = any (paceline.lane_rows((select g.lanes from paceline.grp g where g.id = h.grp)));
    for i in 1 .. cardinality(v_meters) loop
        m := paceline.meter_at(v_meters[i]);
        v_guard := least(v_guard, m.guard);
        update paceline.meter set version = version + 1, parts = paceline.count_start(m, v_taken[i], c.now),
            in_flight = in_flight + 1,
            reserved_by = case when reserved_by = p_job.id then null else reserved_by end, seen_at = c.now
            where id = m.id and version >= m.version;
    end loop;
    if h.again then
        delete from paceline.past where seq = p_job.seq returning * into v_past;
    end if;
    insert into paceline.lease (seq, space, queue, worker, fence, until, started_at, attempts_made, crashes, returns,
            due_at, progress, message, error, logs, meters, taken, guard)
        values (p_job.seq, p_job.space, p_job.queue, c.worker, nextval('paceline.fence'), c.now + c.lease, c.now,
            coalesce(v_past.attempts_made, 0) + 1, coalesce(v_past.crashes, 0), coalesce(v_past.returns, 0),
            v_past.due_at, coalesce(v_past.progress, 0), v_past.message, v_past.error,
            v_past.logs, nullif(v_meters, '{}'), nullif(v_taken, '{}'), nullif(v_guard, 4611686018427387904));
    c.started := c.started || p_job.seq;
    c.fences := c.fences || currval('paceline.fence');
    if c.room is not null then
        c.room := c.room - paceline.cost_under(p_job.cost, p_job.costs, '');
    end if;
    -- A start that filled a group's key files its lanes here and now.
    select array_agg(k.grp), array_agg(k.id) into v_names, v_full from paceline.meters(p_meters) as k
        where k.grp <> '' and paceline.opens_at(k, 1) > c.now;
    if v_full is not null then perform paceline.file_full(c.queues, v_names, v_full, c.now); end if;
end $$;

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
    return case when p_state = 5 then array[paceline.failed_word(p_job, coalesce(v_past.attempts_made, 0), p_error)] end
        || paceline.after_end(p_job.space, array[p_job.seq], array[p_job.id],
            case when p_job.keep = 0 then array[p_job.seq] end, p_job.uniq is not null, array[p_job.queue], p_now,
            p_empty, true);
end $$;

-- A job that no worker failed, but this step itself: whoever asked writes it into its log.
create function paceline.failed_word(p_job paceline.job, p_attempts_made int, p_error text) returns text
language sql volatile as $$
    select 'f' || jsonb_build_object('id', p_job.id, 'queue', q.name, 'task', p_job.task, 'group', p_job.grp,
        'attempts_made', p_attempts_made, 'error', p_error)::text
    from paceline.queue q where q.id = p_job.queue
$$;

-- The next job of a queue that may start now, started; null when nobody may.
create function paceline.take_one(inout c paceline.choosing, p_queue int, p_known int, out seq bigint)
language plpgsql as $$
declare
    h paceline.head;
    v_job paceline.job;
    v record;
begin
    while c.budget > 0 loop
        h := paceline.next_head(p_queue, p_known, c.now);
        if h.lane is null then return; end if;
        select * into v_job from paceline.job j where j.seq = abs(h.place);
        select * into v from paceline.consider(c, h, v_job);
        c := v.c;
        if v.verdict = 0 then return; end if;
        if v.verdict = 1 then
            c := paceline.start_job(c, h, v_job, v.meters, v.taken);
            seq := v_job.seq;
            return;
        end if;
    end loop;
end $$;

-- End leases whose time is over: a dead worker's jobs wait again, its permits are gone. Returns how many.
create function paceline.take_back(p_space int, p_now bigint, p_most int, p_empty boolean, out number int,
    out wakes text[]) language plpgsql as $$
declare
    v_lease paceline.lease;
    v_job paceline.job;
    v_permit paceline.permit;
begin
    number := 0;
    wakes := '{}';
    for v_permit in select * from paceline.permit where space = p_space and until <= p_now
        order by until limit p_most for update skip locked
    loop
        number := number + 1;
        if paceline.end_permit(v_permit, false) then wakes := wakes || '*'::text; end if;
    end loop;
    for v_lease in select s.* from paceline.queue q
        cross join lateral (select o.lease_from from paceline.line o where o.queue = q.id order by o.version desc limit 1) as n
        cross join lateral (select * from paceline.lease o
            where o.queue = q.id and o.until between n.lease_from and p_now order by o.until limit p_most) as s
        where q.space = p_space order by s.until, s.fence limit p_most
    loop
        -- Another claim that has its queue takes it back itself.
        perform from paceline.queue where id = v_lease.queue for no key update skip locked;
        continue when not found;
        select * into v_lease from paceline.lease where seq = v_lease.seq and until <= p_now for update skip locked;
        continue when not found;
        select * into v_job from paceline.job where seq = v_lease.seq;
        number := number + 1;
        wakes := wakes || paceline.end_run(v_job, v_lease, 'crashed', p_now, p_now, null,
            'the worker that ran it died: its lease ended', p_empty);
        if v_lease.crashes >= 2 and not v_lease.cancel_asked then
            wakes := wakes || paceline.failed_word(v_job, v_lease.attempts_made - 1,
                paceline.crashed_text(v_lease.crashes + 1, 'the worker that ran it died: its lease ended'));
        end if;
    end loop;
end $$;

create function paceline.end_permit(p_permit paceline.permit, p_well boolean) returns boolean language plpgsql as $$
begin
    if p_permit.gate = 1 then perform paceline.abandon(p_permit.meters, p_permit.taken); end if;
    delete from paceline.permit where space = p_permit.space and id = p_permit.id;
    return paceline.free(p_permit.meters, array_fill(1, array[cardinality(p_permit.meters)]),
        array_fill(case when p_well then p_permit.started_at end, array[cardinality(p_permit.meters)]));
end $$;

create function paceline.next_lease_end(p_space int) returns bigint language sql volatile as $$
    select coalesce(least(
        (select min(s.until) from paceline.queue q
            cross join lateral (select o.lease_from from paceline.line o
                where o.queue = q.id order by o.version desc limit 1) as n
            cross join lateral (select o.until from paceline.lease o
                where o.queue = q.id and o.until >= n.lease_from order by o.until limit 1) as s
            where q.space = p_space),
        (select until from paceline.permit where space = p_space order by until limit 1)), 4611686018427387904)
$$;

-- File delayed jobs whose time has come, at most so many; returns how many. One after the other, as they are due.
create function paceline.promote_due(p_queue int, p_now bigint, p_most int) returns int language plpgsql as $$
declare
    v_number int;
begin
    with due as (
        delete from paceline.delayed d where (d.queue, d.due_at, d.place) in (
            select o.queue, o.due_at, o.place from paceline.delayed o where o.queue = p_queue and o.due_at <= p_now
            order by o.due_at, o.place limit p_most)
        returning d.*
    ), placed as materialized (
        select row_number() over (order by u.due_at, u.place) as i, j.task, j.grp, j.priority, j.place, u.again,
            j.cost <> 1 or j.costs is not null as big
        from due u cross join lateral (select * from paceline.job o where o.seq = abs(u.place) limit 1) as j
    ), lanes as materialized (
        select s.*, paceline.guess_lane(p_queue, s.task, s.grp) as lane
        from (select task, grp, min(i) as first, count(*) as number, min(array[priority, place]) as head,
            array_agg(priority) as priorities, array_agg(place) as places, array_agg(again) as agains,
            array_agg(big) as bigs from placed group by task, grp order by min(i)) as s
    ), waits as (
        insert into paceline.wait (lane, priority, place, again, big)
            select l.lane, u.priority, u.place, u.again, u.big
            from lanes l, unnest(l.priorities, l.places, l.agains, l.bigs) as u (priority, place, again, big)
    ), arrivals as (
        insert into paceline.arrival (queue, what, lane, task, grp, number, priority, place)
            select p_queue, 0, lane, task, grp, number, head[1], head[2] from lanes order by first
    )
    select count(*) into v_number from placed;
    if v_number > 0 then perform paceline.fold(p_queue); end if;
    return v_number;
end $$;

-- Jobs that a limit is kept free for go first; reservations that no longer hold are given up.
create function paceline.serve_reserved(inout c paceline.choosing, p_queues int[], p_knowns int[], p_slots int)
language plpgsql as $$
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
        v_place := array_position(p_queues, h.queue);
        if v_opens <= c.now and v_place = any (c.active) and cardinality(c.started) < p_slots
            and exists (select from paceline.class k where k.id = h.class and not k.paused
                and (p_knowns[v_place] is null or p_knowns[v_place] = any (k.known_by)))
            and not exists (select from paceline.meters(v_keys.meters) as k where k.reserved_by <> v_job.id)
        then
            select * into v from paceline.consider(c, h, v_job);
            c := v.c;
            if v.verdict = 1 then
                c := paceline.start_job(c, h, v_job, v.meters, v.taken);
                c.wakes := c.wakes || '*'::text;
            end if;
        end if;
    end loop;
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
        or (paceline.lane_of(h.lane)).state = 4 then
        return false;
    end if;
    select * into v_keys from paceline.keys_for(h, p_job.cost, p_job.costs);
    return not exists (select from unnest(v_keys.meters, v_keys.taken) as t (id, cost)
        cross join lateral paceline.meter_at(t.id) as m
        where paceline.opens_at(m, t.cost) > p_now and not paceline.lacks_only_room(m, t.cost, p_now));
end $$;

-- Room that was kept is free for everybody; lanes of queues that somebody else has locked are told by an arrival. Told in
-- both ways, a lane would look again although it was filed anew meanwhile.
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

-- The earliest instant at which a claim could give more than this one did, as far as time decides.
create function paceline.next_at(p_queue int, p_active boolean, p_known int) returns bigint language plpgsql as $$
declare
    v_at bigint := 4611686018427387904;
    v_shared bigint;
    v_until bigint;
    v_class paceline.class;
    v_line paceline.line := paceline.line_of(p_queue);
    v_low int;
begin
    select due_at into v_at from paceline.delayed where queue = p_queue order by due_at limit 1;
    v_at := coalesce(v_at, 4611686018427387904);
    if p_active is not true then return v_at; end if;
    for v_class in select * from paceline.class where queue = p_queue and not paused
        and (p_known is null or p_known = any (known_by))
    loop
        v_shared := case when v_class.shared = '{}' then 0 else paceline.class_opens(v_class.shared) end;
        if v_shared >= 4611686018427387904 then
            perform paceline.await_keys(array(select id from paceline.keys_of(v_class.shared, '')));
            continue;
        end if;
        v_low := array_position(v_line.low_class, v_class.id);
        if exists (select from paceline.lane where class = v_class.id and state = 1 and waiting > 0
            and (turn, filed) >= (coalesce(v_line.low_turn[v_low], 0), coalesce(v_line.low_filed[v_low], 0))) then
            v_at := least(v_at, v_shared);
        else
            select until into v_until from paceline.lane
                where class = v_class.id and state = 2 and waiting > 0 and until > v_line.open_from
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

create type paceline.claim_head as (instant bigint, again_at bigint, needs_room bigint, lost text[],
    wakes text[], seqs bigint[], replayed boolean);

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
    if h.seqs = '{}' then
        return query select h.instant, h.again_at, h.needs_room, 0::bigint, h.lost, h.wakes, h.seqs, null::text[], null::int[],
            null::text[], null::bytea[], null::text[], null::bigint[], null::bigint[], null::int[], null::bigint[],
            null::bigint[], null::bigint[], null::bigint[], null::text[], null::bigint[];
        return;
    end if;
    select sum(octet_length(j.data) + 200) as size, array_agg(j.id) as ids, array_agg(j.queue) as queues,
        array_agg(j.task) as tasks, array_agg(j.data) as datas, array_agg(j.grp) as grps,
        array_agg(j.priority) as priorities, array_agg(j.place) as places, array_agg(j.attempts) as attempts,
        array_agg(j.keep) as keeps, array_agg(j.created_at) as created_ats, array_agg(coalesce(s.due_at, j.due_at)) as due_ats,
        array_agg(s.fence) as fences, array_agg(j.cost) as costs, bool_or(j.costs is not null) as by_limit,
        array_agg(j.costs) as cost_maps,
        array_agg(case when j.cost <> 1 or s.attempts_made <> 1 or s.returns <> 0 or s.crashes <> 0 or s.cancel_asked
                or s.started_at <> h.instant or s.progress <> 0 or coalesce(j.timeout::text, j.backoff, j.uniq,
                    j.costs::text, s.message, s.error, s.logs::text) is not null
            then jsonb_build_object('attempts_made', s.attempts_made, 'crashes', s.crashes, 'returns', s.returns,
                'cost', j.cost, 'costs', j.costs, 'timeout', j.timeout, 'backoff', j.backoff, 'unique', j.uniq,
                'unique_until', j.uniq_until, 'started_at', s.started_at, 'progress', s.progress,
                'message', s.message, 'error', s.error, 'logs', s.logs, 'cancel_asked', s.cancel_asked)::text
            end) as rests,
        case when bool_or(s.guard is not null) then array_agg(coalesce(s.guard, 4611686018427387904)) end as guards,
        case when not h.replayed then paceline.waited(h.instant) end as waited
        into a from unnest(h.seqs) as t (seq)
        cross join lateral (select * from paceline.job o where o.seq = t.seq limit 1) as j
        cross join lateral (select * from paceline.lease o where o.seq = t.seq limit 1) as s;
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
            a.datas, a.grps, a.priorities, a.places, a.attempts, a.keeps, a.created_ats, a.due_ats, a.fences, a.rests,
            a.guards;
        return;
    end if;
    v_fit := (select count(*) from (select sum(octet_length(t.data) + 200) over (order by t.number) as upto
        from unnest(a.datas) with ordinality as t (data, number)) as s where s.upto <= 65536);
    return query select h.instant, h.again_at, h.needs_room, a.waited, h.lost, h.wakes, h.seqs, a.ids[:v_fit],
        a.queues[:v_fit], a.tasks[:v_fit], a.datas[:v_fit], a.grps[:v_fit], a.priorities[:v_fit], a.places[:v_fit],
        a.attempts[:v_fit], a.keeps[:v_fit], a.created_ats[:v_fit], a.due_ats[:v_fit], a.fences[:v_fit], a.rests[:v_fit],
        a.guards;
end $$;

create function paceline.claim(
    p_space int, p_now bigint, p_queues int[], p_slots int, p_worker text, p_lease bigint, p_claim_id text,
    p_tasks text[], p_also text[], p_room bigint, p_most bigint,
    p_ids text[], p_fences bigint[], p_outcomes text[], p_results bytea[], p_errors text[],
    p_afters bigint[], p_ats bigint[], p_opens boolean[], p_holds jsonb[], p_empty boolean
) returns paceline.claim_head language plpgsql as $$
declare
    v_answer paceline.claim_head;
    c paceline.choosing;
    v_found record;
    v_ahead record;
    v_knowns int[];
    v_ended paceline.ended;
    v_back record;
    v_place int;
    v_one record;
    v_limits int[] := '{}';
    v_also bigint := 0;
    v_most int := 2 * p_slots + 64; -- what one claim moves of each kind
    v_busy boolean := false; -- there is more to move
begin
    -- Every expression here is paid for in every claim, jobs or none: what is rare is asked for together.
    select s.next_expiry <= coalesce(p_now, paceline.clock_us()) as expires,
        current_setting('transaction_isolation') <> 'read committed' as old,
        cardinality(p_ids) > 0 and not paceline.are_plain(p_outcomes, p_holds) as special
        into v_found from paceline.space s where s.id = p_space;
    if v_found.old then
        perform paceline.fail('isolation', jsonb_build_object('error', 'isolation'));
    end if;
    if v_found.expires then
        perform paceline.expire(p_space, coalesce(p_now, paceline.clock_us()));
    end if;
    if v_found.special then
        perform paceline.lock_for_finish(p_space, p_ids, p_holds, p_queues);
    else
        perform from paceline.queue where id = any (p_queues) order by id for no key update;
    end if;
    -- What this claim has to think of at all, now that nothing changes any more.
    select l.claim_id, l.version, l.first_fence, l.last_fence, s.next_expiry, coalesce(q.active, '{}') as active,
        greatest(coalesce(p_now, paceline.clock_us()), q.seen_at) as now,
        exists (select from paceline.lim o where o.space = p_space) as limited,
        p_empty or exists (select from paceline.listener o where o.space = p_space and o.wants_empty
            and o.until > paceline.clock_us()) as empty
        into v_found from paceline.space s
        cross join lateral (select max(n.seen_at) as seen_at, array_agg(t.place::int) filter (where not u.paused) as active
            from unnest(p_queues) with ordinality as t (id, place)
            cross join lateral (select o.paused from paceline.queue o where o.id = t.id limit 1) as u
            cross join lateral (select o.seen_at from paceline.line o where o.queue = t.id order by o.version desc limit 1)
                as n) as q
        left join lateral (select * from paceline.last_claim o where o.space = p_space and o.worker = p_worker
            order by o.version desc limit 1) as l on true
        where s.id = p_space;
    if p_claim_id <> '' and v_found.claim_id = p_claim_id then
        -- The same claim asked again, because its answer was lost: those of its jobs that still run.
        return row (v_found.now, v_found.now, 0, '{}'::text[], '{}'::text[], array(
            select s.seq from paceline.lease s where s.queue = any (p_queues) and s.worker = p_worker
                and s.fence between v_found.first_fence and v_found.last_fence order by s.fence), true)::paceline.claim_head;
    end if;
    c := row (p_space, v_found.now, v_most, '{}'::bigint[], '{}'::text[], p_room, p_most, 0, p_worker, p_lease,
        '{}'::bigint[], '{}'::bigint[], '{}'::bigint[], '{}'::text[], false, 0, '{}'::int[], '{}'::bigint[], p_queues, v_found.active, 1)::paceline.choosing;
    if v_found.limited or p_also <> '{}' then
        select * into v_one from paceline.lock_shared(c, p_now, p_also);
        c := v_one.c;
        v_limits := v_one.limits;
    end if;
    v_answer.lost := '{}';
    if cardinality(p_ids) > 0 then
        v_ended := paceline.end_runs(p_space, c.now, p_ids, p_fences, p_outcomes, p_results, p_errors, p_afters, p_ats,
            p_opens, p_holds, v_found.empty);
        v_answer.lost := v_ended.lost;
        c.wakes := v_ended.wakes;
    end if;
    if p_tasks is not null then
        v_knowns := array(select paceline.know(t.id, p_tasks) from unnest(p_queues) with ordinality as t (id, place)
            order by t.place);
    end if;
    select paceline.next_lease_end(p_space) as lease_end, min(d.due_at) as due_at,
        -- Arrivals are gone when they are taken in; the last look says where live ones begin.
        bool_or(n.folding is not null or n.folded is null or (pg_snapshot_xmax(pg_current_snapshot()))::text::bigint
                - (pg_snapshot_xmin(n.folded))::text::bigint > 64
            or exists (select from paceline.arrival o where o.queue = n.queue and o.xid >= pg_snapshot_xmin(n.folded))) as came,
        bool_or(coalesce(e.until, 4611686018427387904) - n.lease_from > 500000) as late,
        bool_and(n.waiting = 0) and cardinality(p_queues) = 1 and not v_found.limited and v_found.active <> '{}'
            and p_room is null and p_most is null and p_slots > 0 as idle
        into v_ahead from unnest(p_queues) as t (id)
        cross join lateral (select * from paceline.line o where o.queue = t.id order by o.version desc limit 1) as n
        left join lateral (select o.due_at from paceline.delayed o where o.queue = t.id order by o.due_at limit 1) as d on true
        left join lateral (select o.until from paceline.lease o where o.queue = t.id and o.until >= n.lease_from
            order by o.until limit 1) as e on true;
    v_answer.again_at := v_ahead.lease_end;
    if v_ahead.lease_end <= c.now then
        select * into v_back from paceline.take_back(p_space, c.now, v_most, v_found.empty);
        v_busy := v_back.number >= v_most;
        c.wakes := c.wakes || v_back.wakes;
        v_answer.again_at := paceline.next_lease_end(p_space);
        v_ahead.came := true;
    end if;
    if v_ahead.came and v_ahead.idle and coalesce(v_ahead.due_at > c.now, true) then
        c := paceline.take_first(c, p_queues[1], v_knowns[1]);
        v_ahead.came := c.started = '{}';
    end if;
    if v_ahead.came or v_ahead.due_at <= c.now then
        select * into v_one from paceline.take_in(c, v_most);
        c := v_one.c;
        v_busy := v_busy or v_one.busy;
        select min(d.due_at) into v_ahead.due_at from unnest(p_queues) as t (id) cross join lateral (
            select o.due_at from paceline.delayed o where o.queue = t.id order by o.due_at limit 1) as d;
    end if;
    if v_found.limited then
        -- Classes that came into being just now bring keys that are not locked yet.
        perform paceline.meter_of(s.lim, '') from (select distinct u.lim from paceline.class k, unnest(k.shared) as u (lim)
            where k.queue = any (p_queues) and not u.lim = any (v_limits) order by 1) as s;
        -- Lanes whose time has come are ready.
        if paceline.open_lanes(p_queues, c.now, v_most) then
            v_busy := true;
        else
            c.opened := c.now;
        end if;
        c.reserved := exists (select from paceline.meter m join paceline.lim l on l.id = m.lim
            where l.space = p_space and m.reserved_by is not null);
    end if;
    if c.reserved then
        c := paceline.serve_reserved(c, p_queues, v_knowns, p_slots);
    elsif c.also = '{}' and c.room is null and c.most is null then
        if cardinality(c.active) = 1 then
            c := paceline.take_lane(c, p_queues[c.active[1]], v_knowns[c.active[1]], p_slots);
        end if;
        if c.active <> '{}' and cardinality(c.started) < p_slots then
            select * into v_one from paceline.take_turns(c, p_queues, v_knowns, p_slots);
            c := v_one.c;
        end if;
    end if;
    -- One job from each queue in turn, until the slots are full or nobody may start.
    while c.active <> '{}' and cardinality(c.started) < p_slots loop
        exit when c.also <> '{}'
            and paceline.max_opens(c.also, array_fill(1::bigint, array[cardinality(c.also)])) > c.now;
        if c.turn > cardinality(c.active) then c.turn := 1; end if;
        v_place := c.active[c.turn];
        select * into v_one from paceline.take_one(c, p_queues[v_place], v_knowns[v_place]);
        c := v_one.c;
        if v_one.seq is null then
            c.active := array_remove(c.active, v_place);
            exit when c.needs_room > 0;
        else
            c.turn := c.turn + 1;
        end if;
    end loop;
    v_busy := v_busy or c.budget <= 0;
    if c.also <> '{}' and not v_busy then
        v_also := paceline.max_opens(c.also, array_fill(1::bigint, array[cardinality(c.also)]));
        if 4611686018427387904 = any (c.stuck_until || v_also) then perform paceline.await_keys(c.also); end if;
    end if;
    v_answer.again_at := case when v_busy then c.now else least(v_answer.again_at, v_found.next_expiry,
        case when c.started <> '{}' then c.now + p_lease end,
        case when cardinality(c.started) >= p_slots then greatest(v_also, c.now)
            when not v_found.limited then v_ahead.due_at end) end;
    if v_found.limited and not v_busy and cardinality(c.started) < p_slots then
        for i in 1 .. cardinality(p_queues) loop
            v_answer.again_at := least(v_answer.again_at,
                greatest(paceline.next_at(p_queues[i], i = any (v_found.active), v_knowns[i]), v_also,
                    c.stuck_until[array_position(c.stuck_queues, p_queues[i])]));
        end loop;
    end if;
    if c.skipped <> '{}' then
        update paceline.lane set version = version + 1, state = 1
            where ctid = any (paceline.lane_rows(c.skipped)) and state = 3 and waiting > 0;
        perform paceline.forget_lowest(p_queues);
    end if;
    if c.started = '{}' or cardinality(p_queues) > 1 or v_ahead.late then
        perform paceline.note_claim(t.id, c.now, c.opened) from unnest(p_queues) as t (id);
    end if;
    -- A claim that did nothing needs no memory: asked again, it is simply asked.
    if c.started <> '{}' or cardinality(p_ids) > 0 then
        if v_found.version is null then
            insert into paceline.last_claim (space, worker, claim_id, first_fence, last_fence)
                values (p_space, p_worker, p_claim_id, c.fences[1], c.fences[cardinality(c.fences)])
                on conflict (space, worker, version) do nothing;
        else
            update paceline.last_claim set version = version + 1, claim_id = p_claim_id, first_fence = c.fences[1],
                last_fence = c.fences[cardinality(c.fences)]
                where space = p_space and worker = p_worker and version >= v_found.version;
        end if;
    end if;
    if c.wakes <> '{}' then perform paceline.tell(p_space, c.wakes); end if;
    return row (c.now, greatest(v_answer.again_at, c.now), c.needs_room, v_answer.lost, c.wakes, c.started,
        false)::paceline.claim_head;
end $$;

-- Lock all shared keys that a claim may look at, together and in order. The time is read when they are held; it stands
-- still rather than go back.
create function paceline.lock_shared(inout c paceline.choosing, p_now bigint, p_also text[], out limits int[])
language plpgsql as $$
declare
    v_name text;
begin
    foreach v_name in array p_also loop
        perform paceline.require_limit(c.space, v_name);
    end loop;
    select coalesce(array_agg(distinct l), '{}') into limits from (
        select unnest(k.shared) as l from paceline.class k where k.queue = any (c.queues)
        union select id from paceline.lim where space = c.space and name = any (p_also)) as s;
    if limits = '{}' then return; end if;
    perform paceline.meter_of(t.id, '') from (select unnest(limits) as id order by 1) as t
        where not exists (select from paceline.key k where k.lim = t.id and k.grp = '');
    perform paceline.lock_keys(array(select k.id from unnest(limits) as t (id)
        cross join lateral (select o.id from paceline.key o where o.lim = t.id and o.grp = '' limit 1) as k));
    c.now := greatest(coalesce(p_now, paceline.clock_us()), c.now,
        (select max(m.seen_at) from paceline.keys_of(limits, '') as m));
    if p_also <> '{}' then
        select array_agg((paceline.meter_of(l.id, '')).id order by t.place), array_agg(l.name order by t.place)
            into c.also, c.also_names from unnest(p_also) with ordinality as t (name, place)
            join paceline.lim l on l.space = c.space and l.name = t.name;
    end if;
end $$;

-- Take in what came and what is due, of each queue at most so many; busy: there is more. When more came than one claim
-- takes in, whoever comes first in that queue cannot be told before all are in: it gives nothing now. Delayed jobs come
-- one after the other as they are due, however many, so that others start meanwhile.
create function paceline.take_in(inout c paceline.choosing, p_most int, out busy boolean) language plpgsql as $$
begin
    busy := false;
    for i in 1 .. cardinality(c.queues) loop
        if not paceline.fold_one(c.queues[i]) and not paceline.fold(c.queues[i], greatest(p_most, 500)) then
            c.active := array_remove(c.active, i);
            busy := true;
        elsif exists (select from paceline.delayed o where o.queue = c.queues[i] and o.due_at <= c.now) then
            busy := paceline.promote_due(c.queues[i], c.now, p_most) >= p_most or busy;
        end if;
    end loop;
end $$;

-- Blocked lanes whose time has come are ready, of each queue at most so many; true when there may be more.
create function paceline.open_lanes(p_queues int[], p_now bigint, p_most int) returns boolean language plpgsql as $$
declare
    v_more boolean := false;
    v_rows tid[];
begin
    for i in 1 .. cardinality(p_queues) loop
        select array_agg(s.ctid) into v_rows from (
            select e.ctid from paceline.line_of(p_queues[i]) as n join paceline.class k on k.queue = n.queue
            cross join lateral (select o.ctid, o.until, o.filed from paceline.lane o
                where o.class = k.id and o.state = 2 and o.waiting > 0 and o.until > n.open_from and o.until <= p_now
                order by o.until, o.filed limit p_most) as e
            order by k.id, e.until, e.filed limit p_most) as s;
        continue when v_rows is null;
        v_more := v_more or cardinality(v_rows) >= p_most;
        perform paceline.make_ready(v_rows);
    end loop;
    return v_more;
end $$;

-- How far the clock has come, and from when on leases may end: dead ones before it are not visited again. The bound
-- may be a little low: it is worth a write only once in a while.
create function paceline.note_claim(p_queue int, p_now bigint, p_opened bigint) returns void language sql as $$
    update paceline.line u set version = u.version + 1, seen_at = greatest(u.seen_at, p_now), lease_from = n.lease_from,
        open_from = greatest(u.open_from, p_opened)
        from (select o.ctid as row, coalesce((select e.until from paceline.lease e
                where e.queue = p_queue and e.until >= o.lease_from order by e.until limit 1), 4611686018427387904) as lease_from
            from (select s.ctid, s.lease_from from paceline.line s where s.queue = p_queue order by s.version desc limit 1)
                as o) as n
        where u.ctid = n.row and (u.seen_at < p_now or n.lease_from - u.lease_from > 500000)
$$;
