-- Chosen jobs become active: leases, charges and turns, each table written once.

-- The keys of each lane and the smallest guard among them, as a lease keeps them.
create function paceline.lease_keys(t paceline.turns, out meters text[], out guards bigint[]) language plpgsql stable as $$
begin
    select array_agg(s.meters order by l.l), array_agg(nullif(s.guard, paceline.never()) order by l.l) into meters, guards
        from unnest(t.l_k, t.l_from, t.l_to) with ordinality as l (k, first, last, l)
        cross join lateral (select array_agg(t.m_id[u.m] order by u.n)::text as meters, min(t.m_guard[u.m]) as guard
            from unnest(t.k_keys[t.k_from[l.k] : t.k_to[l.k]] || t.l_keys[l.first : l.last]) with ordinality as u (m, n)) as s;
end $$;

-- Move jobs from their lanes to active, charge every key, and give their groups the next turns. `p_job`: a job that was
-- considered alone, with the keys that it is charged to and what it takes from each.
create function paceline.start_jobs(inout c paceline.choosing, t paceline.turns, p_picks int[], p_job paceline.job,
    p_meters bigint[], p_taken bigint[]) language plpgsql as $$
declare
    v_seqs bigint[];
    v_fences bigint[];
    v_meters text[];
    v_guards bigint[];
    v_again boolean;
begin
    if p_meters <> '{}' then
        v_meters[t.a_lane[p_picks[1]]] := p_meters::text;
        v_guards[t.a_lane[p_picks[1]]] := (select nullif(min(m.guard), paceline.never()) from paceline.meters(p_meters) as m);
    elsif t.m_id <> '{}' and p_meters is null then
        select k.meters, k.guards into v_meters, v_guards from paceline.lease_keys(t) as k;
    end if;
    delete from paceline.wait where ctid = any (array(select t.a_row[u.i] from unnest(p_picks) as u (i)));
    with begun as (
        insert into paceline.lease (seq, space, queue, worker, fence, until, started_at, attempts_made, crashes, returns,
                due_at, progress, message, error, logs, meters, taken, guard)
            select abs(u.place), c.space, c.queues[t.k_place[t.l_k[u.l]]], c.worker, nextval('paceline.fence'),
                c.now + c.lease, c.now, coalesce(p.attempts_made, 0) + 1, coalesce(p.crashes, 0), coalesce(p.returns, 0),
                p.due_at, coalesce(p.progress, 0), p.message, p.error, p.logs, v_meters[u.l]::bigint[],
                nullif(p_taken, '{}'), v_guards[u.l]
            from (select t.a_place[i.i] as place, t.a_lane[i.i] as l, t.a_again[i.i] as again
                from unnest(p_picks) as i (i) offset 0) as u
            left join lateral (select * from paceline.past o where u.again and o.seq = abs(u.place) limit 1) as p on true
            returning seq, fence, guard
    )
    select array_agg(b.seq), array_agg(b.fence), array_agg(b.guard) into v_seqs, v_fences, v_guards from begun b;
    c.started := c.started || v_seqs;
    c.fences := c.fences || v_fences;
    c.guards := c.guards || v_guards;
    c.agains := c.agains || array(select t.a_again[u.i] from unnest(p_picks) as u (i));
    if true = any (c.agains) then delete from paceline.past where seq = any (v_seqs); end if;
    perform paceline.move_turns(c, t, p_picks, case when p_job.costs is null then coalesce(p_job.cost, 1) else 1 end);
    if v_meters is not null then perform paceline.charge_picks(c, t, p_picks, p_job, p_meters, p_taken); end if;
    if p_job.id is not null and c.room is not null then
        c.room := c.room - paceline.cost_under(p_job.cost, p_job.costs, '');
    end if;
end $$;

-- Groups that started jobs stand at their next turns, and their queues at the latest one.
create function paceline.move_turns(c paceline.choosing, t paceline.turns, p_picks int[], p_cost bigint) returns void
language plpgsql as $$
declare
    v_moved record;
    v_waiting bigint[];
begin
    for v_moved in with lane as (
        select p.l, p.place, count(*)::int as number, max(p.n) as last, max(p.nth) as nth, max(p.tag) as tag
        from (select t.a_lane[i.i] as l, t.k_place[t.l_k[t.a_lane[i.i]]] as place, i.n, t.a_tag[i.i] as tag,
                row_number() over (partition by t.k_place[t.l_k[t.a_lane[i.i]]] order by i.n) as nth
            from unnest(p_picks) with ordinality as i (i, n)) as p group by p.l, p.place
    ), turn as (
        select s.*, sum(s.number) over (partition by t.l_grp[s.l]) as starts, max(s.nth) over (partition by t.l_grp[s.l]) as f
        from lane s
    ), filed as (
        select s.l, s.place, s.number, s.tag, p_picks[s.last] as i, n.filings + s.f as filed,
            greatest(t.l_turn[s.l], t.k_time[t.l_k[s.l]]) + s.starts::bigint * p_cost * paceline.one() as turn
        from turn s cross join lateral (select o.filings from paceline.queue_state o where o.queue = c.queues[s.place]
            order by o.version desc limit 1) as n
    ), written as (
        update paceline.lane u set version = u.version + 1, turn = s.turn, filed = s.filed, waiting = u.waiting - s.number,
            head_priority = t.a_priority[s.i], head_place = t.a_place[s.i] from filed s where u.ctid = t.l_row[s.l]
            returning s.l, s.place, s.number, s.tag, s.turn, s.filed, u.waiting, t.l_several[s.l] as several
    )
    select s.place, array_agg(s.l) as ls, max(s.tag) as tag, array_agg(t.k_id[t.l_k[s.l]]) as classes,
        array_agg(s.number) as numbers, count(*) filter (where s.waiting = 0 and not s.several) as emptied,
        array_agg(t.l_grp[s.l]) filter (where s.several) as grps, array_agg(s.turn) filter (where s.several) as turns,
        array_agg(s.filed) filter (where s.several) as filed,
        array_agg(t.l_grp[s.l]) filter (where s.several and s.waiting > 0) as waiting from written s group by s.place
    loop
        if v_moved.grps is not null then
            -- Their other lanes wait at the group's turn too.
            v_waiting := v_moved.waiting || paceline.turn_siblings(v_moved.grps,
                array(select t.l_id[u.l] from unnest(v_moved.ls) as u (l)), v_moved.turns, v_moved.filed);
            v_moved.emptied := v_moved.emptied + (select count(distinct u.grp) from unnest(v_moved.grps) as u (grp)
                where v_waiting is null or not u.grp = any (v_waiting));
        end if;
        perform paceline.move_queue_state(c.queues[v_moved.place], v_moved.tag, v_moved.classes, v_moved.numbers,
            v_moved.emptied, c.now, c.now + c.lease, c.opened, t.mark_class, t.mark_turn, t.mark_filed);
    end loop;
end $$;

-- Lanes of groups that did not start anything themselves get the turns of their groups; gives the groups that have some.
create function paceline.turn_siblings(p_grps bigint[], p_lanes bigint[], p_turns bigint[], p_filed bigint[])
returns bigint[] language sql as $$
    with moved as (update paceline.lane u set version = u.version + 1, turn = s.turn, filed = s.filed
        from (select e.ctid as row, g.turn, g.filed from (select distinct o.grp, o.turn, o.filed
                from unnest(p_grps, p_turns, p_filed) as o (grp, turn, filed)) as g
            cross join lateral (select o.lanes from paceline.grp o where o.id = g.grp limit 1) as r
            cross join lateral unnest(r.lanes) as y (id)
            cross join lateral (select o.ctid, o.waiting from paceline.lane o where o.id = y.id order by o.version desc
                limit 1) as e
            where e.waiting > 0 and not y.id = any (p_lanes)) as s where u.ctid = s.row returning u.grp)
    select array_agg(m.grp) from moved m
$$;

-- A queue after so many starts in lanes of these classes; marks of classes take the place of earlier ones.
create function paceline.move_queue_state(p_queue int, p_tag bigint, p_classes int[], p_numbers int[], p_emptied bigint,
    p_now bigint, p_lease_end bigint, p_opened bigint, p_marked int[], p_turns bigint[], p_filed bigint[]) returns void
language plpgsql as $$
declare
    v_queue_state paceline.queue_state := paceline.queue_state_of(p_queue);
    v_waiting bigint[] := v_queue_state.class_waiting;
    v_number int := 0;
    k int;
begin
    for i in 1 .. cardinality(p_classes) loop
        k := array_position(v_queue_state.class_ids, p_classes[i]);
        v_waiting[k] := v_waiting[k] - p_numbers[i];
        v_number := v_number + p_numbers[i];
    end loop;
    if p_marked is not null then
        for i in 1 .. cardinality(p_marked) loop
            v_queue_state := paceline.marked(v_queue_state, p_marked[i], p_turns[i], p_filed[i]);
        end loop;
    end if;
    update paceline.queue_state set version = version + 1, virtual_time = greatest(virtual_time, p_tag),
        filings = filings + v_number, waiting = waiting - v_number,
        groups = groups - p_emptied, class_waiting = v_waiting, seen_at = greatest(seen_at, p_now),
        lease_from = coalesce((select o.until from paceline.lease o where o.queue = p_queue
            and o.until >= least(v_queue_state.lease_from, p_lease_end) order by o.until limit 1), paceline.never()), open_from = greatest(open_from, p_opened),
        low_class = v_queue_state.low_class, low_turn = v_queue_state.low_turn, low_filed = v_queue_state.low_filed
        where queue = p_queue and version >= v_queue_state.version;
end $$;

-- Charge what started to every key, and file the lanes of groups whose keys are full now.
create function paceline.charge_picks(c paceline.choosing, t paceline.turns, p_picks int[], p_job paceline.job,
    p_meters bigint[], p_taken bigint[]) returns void language plpgsql as $$
declare
    v_keys record;
begin
    if p_meters is not null then
        perform paceline.charge(array(select o.ctid from unnest(p_meters) with ordinality as u (id, place)
                cross join lateral (select k.ctid from paceline.meter k where k.id = u.id order by k.version desc limit 1) as o
                order by u.place), p_taken, array_fill(1::bigint, array[cardinality(p_meters)]), c.now, p_job.id);
        select array_agg(m.grp) as names, array_agg(m.id) as full into v_keys from paceline.meters(p_meters) as m
            where m.grp <> '' and paceline.opens_at(m, 1) > c.now;
    else
        select array_agg(t.m_row[s.m]) as rows, array_agg(s.number) as numbers,
            array_agg(t.l_name[s.l] order by s.last, s.place) filter (where s.l is not null and s.number >= t.m_free[s.m])
                as names,
            array_agg(t.m_id[s.m] order by s.last, s.place) filter (where s.l is not null and s.number >= t.m_free[s.m])
                as full into v_keys
            from (select u.m, sum(e.number)::bigint as number, max(e.last) as last, min(u.place) as place,
                    min(case when u.place > t.k_to[e.k] - t.k_from[e.k] + 1 then e.l end) as l
                from (select t.a_lane[i.i] as l, t.l_k[t.a_lane[i.i]] as k, count(*) as number, max(i.n) as last
                    from unnest(p_picks) with ordinality as i (i, n) group by 1, 2) as e
                cross join lateral unnest(t.k_keys[t.k_from[e.k] : t.k_to[e.k]] || t.l_keys[t.l_from[e.l] : t.l_to[e.l]])
                    with ordinality as u (m, place) group by u.m) as s;
        perform paceline.charge(v_keys.rows, v_keys.numbers, v_keys.numbers, c.now, null);
    end if;
    if v_keys.full is not null then perform paceline.file_full(c.queues, v_keys.names, v_keys.full, c.now); end if;
end $$;

-- Count starts under keys, given by their rows: so much in their windows, so many slots. All at one instant, which a rate's
-- log has once.
create function paceline.charge(p_rows tid[], p_costs bigint[], p_starts bigint[], p_now bigint, p_job text)
returns void language plpgsql as $$
declare
    v_old bigint[];
begin
    with charged as (
        update paceline.meter m set version = m.version + 1, parts = paceline.charged(m.parts, n.cost, p_now),
            in_flight = m.in_flight + n.starts, seen_at = p_now, reserved_by = nullif(m.reserved_by, p_job)
            from unnest(p_rows, p_costs, p_starts) as n (row, cost, starts) where m.ctid = n.row returning m.id, m.parts
    ), logged as (
        insert into paceline.spent as s (meter, part, at, cum)
            select k.id, i, k.parts[i * 8 + 7], k.parts[i * 8 + 4] from charged k
            cross join lateral generate_series(0, cardinality(k.parts) / 8 - 1) as i where k.parts[i * 8 + 1] in (1, 5)
            on conflict (meter, part, at) do update set cum = excluded.cum
    )
    -- Entries that no decision can ask for: more has been counted than the window admits.
    select array_agg(k.id) into v_old from charged k where k.parts[4] - k.parts[2] > k.parts[5]
        or cardinality(k.parts) > 8 and (k.parts[12] - k.parts[10] > k.parts[13] or cardinality(k.parts) > 16);
    if v_old is not null then perform paceline.trim(v_old, p_now); end if;
end $$;

-- The state of parts after starts at one instant; what rates have spent is written beside.
create function paceline.charged(p_parts bigint[], p_cost bigint, p_now bigint) returns bigint[]
language plpgsql immutable as $$
declare
    b int;
begin
    for i in 0 .. cardinality(p_parts) / 8 - 1 loop
        b := i * 8;
        if p_parts[b + 1] in (1, 5) then
            p_parts[b + 4] := p_parts[b + 4] + p_cost;
            p_parts[b + 7] := greatest(p_now, p_parts[b + 7]);
        elsif p_parts[b + 1] in (3, 4) then
            p_parts := paceline.part_charge(0, p_parts, i, p_cost, p_now);
        end if;
    end loop;
    return p_parts;
end $$;

-- Fold old entries of rates: a few with every charge keep pace with what is added.
create function paceline.trim(p_meters bigint[], p_now bigint) returns void language plpgsql as $$
declare
    m paceline.meter;
    v_parts bigint[];
begin
    for m in select * from paceline.meters(p_meters) loop
        v_parts := m.parts;
        for i in 0 .. cardinality(v_parts) / 8 - 1 loop
            if v_parts[i * 8 + 1] in (1, 5) then v_parts := paceline.trim_spent(m.id, v_parts, i, p_now, 2); end if;
        end loop;
        if v_parts <> m.parts then
            update paceline.meter set version = version + 1, parts = v_parts where id = m.id and version >= m.version;
        end if;
    end loop;
end $$;

-- How many starts of cost 1 a key admits at this instant, at most so many; null when each start has to be asked for.
create function paceline.admits(m paceline.meter, p_now bigint, p_most int) returns bigint language plpgsql stable as $$
declare
    v_free bigint := m.slots - m.in_flight;
    v_room bigint;
    v_singly boolean := false;
    b int;
begin
    if m.hold_until > p_now or v_free <= 0 then return 0; end if;
    for i in 0 .. cardinality(m.parts) / 8 - 1 loop
        b := i * 8;
        if m.parts[b + 1] = 1 then
            -- What the whole log leaves free is enough as a rule; only otherwise it matters what has left the window.
            v_room := m.parts[b + 2] - m.open - m.parts[b + 4];
            if v_room < p_most then
                v_room := case when m.parts[b + 7] <= p_now - m.parts[b + 3] then m.parts[b + 2] - m.open
                    else v_room + coalesce(paceline.gone(m.id, m.parts, i, p_now), 0) end;
            end if;
            v_free := least(v_free, v_room);
        elsif m.parts[b + 1] in (3, 4) then
            if paceline.part_opens(m.id, m.parts, i, 1) > p_now then return 0; end if;
            v_singly := v_singly or m.parts[b + 1] = 4 and m.parts[b + 3] < m.parts[b + 2];
            v_free := least(v_free, 1);
        end if;
    end loop;
    return case when v_free <= 0 then 0 when not v_singly then v_free end;
end $$;

-- Starts filled keys of groups: their ready lanes, in all queues of the claim, are blocked until the key opens, or parked until something finishes.
create function paceline.file_full(p_queues int[], p_names text[], p_meters bigint[], p_now bigint) returns void
language plpgsql as $$
declare
    v_rows tid[];
    v_untils bigint[];
    v_parked boolean;
    v_key record;
begin
    select array_agg(s.ctid), array_agg(s.until), bool_or(s.until >= paceline.never())
        into v_rows, v_untils, v_parked from (
        select distinct on (e.id) e.ctid, paceline.opens_at(k, 1) as until
        from unnest(p_names, p_meters) with ordinality as t (name, meter, place)
        cross join lateral (select * from paceline.meter o where o.id = t.meter order by o.version desc limit 1) as k
        cross join lateral unnest(p_queues) as q (id)
        cross join lateral (select o.lanes from paceline.grp o where o.queue = q.id and o.name = t.name limit 1) as r
        cross join lateral unnest(r.lanes) as y (id)
        cross join lateral (select o.ctid, o.* from paceline.lane o where o.id = y.id order by o.version desc limit 1) as e
        cross join lateral (select from paceline.class o where o.id = e.class and k.lim = any (o.grouped) limit 1) as d
        where e.state = paceline.ready() and e.waiting > 0 order by e.id, t.place) as s where s.until > p_now;
    if v_rows is null then return; end if;
    if v_parked then
        -- What frees a key of a parked lane notifies its queue.
        for v_key in select k.id, k.version, array_agg(distinct e.queue) as queues
            from unnest(v_rows, v_untils) as t (row, until)
            cross join lateral (select * from paceline.lane o where o.ctid = t.row limit 1) as e
            cross join lateral (select o.grouped from paceline.class o where o.id = e.class limit 1) as d
            cross join lateral (select o.name from paceline.grp o where o.id = e.grp limit 1) as r
            cross join lateral paceline.keys_of(d.grouped, r.name) as k
            where t.until >= paceline.never() group by k.id, k.version
        loop
            update paceline.meter u set version = u.version + 1,
                parked = u.parked || array(select unnest(v_key.queues) except select unnest(u.parked))
                where u.id = v_key.id and u.version >= v_key.version;
        end loop;
    end if;
    update paceline.lane l set version = l.version + 1,
        state = case when t.until >= paceline.never() then paceline.parked() else paceline.blocked() end,
        until = case when t.until >= paceline.never() then l.until else t.until end
        from unnest(v_rows, v_untils) as t (row, until) where l.ctid = t.row;
end $$;
