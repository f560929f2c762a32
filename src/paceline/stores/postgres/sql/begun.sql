-- Step 3, begun: from when on a start counts whose handler began later than its stamp allows.

-- Count a start in windows alone: slots and gaps were decided at its claim.
create function paceline.count_begin(p_meter bigint, p_parts bigint[], p_cost bigint, p_at bigint) returns bigint[]
language plpgsql as $$
begin
    for i in 0 .. cardinality(p_parts) / 8 - 1 loop
        if p_parts[i * 8 + 1] in (1, 5) then
            p_parts := paceline.put_in(p_meter, p_parts, i, p_cost, p_at);
        end if;
    end loop;
    return p_parts;
end $$;

-- Count a start at an instant that may lie before others.
create function paceline.put_in(p_meter bigint, p_parts bigint[], p_part int, p_cost bigint, p_at bigint) returns bigint[]
language plpgsql as $$
declare
    b int := p_part * 8;
    v_before bigint;
begin
    if p_at >= p_parts[b + 7] then return paceline.part_charge(p_meter, p_parts, p_part, p_cost, p_at); end if;
    p_parts := paceline.fold_spent(p_meter, p_parts, p_part);
    p_parts[b + 4] := p_parts[b + 4] + p_cost;
    if p_parts[b + 5] > 0 and p_at <= p_parts[b + 6] then
        -- As old as what is not known one by one.
        p_parts[b + 5] := p_parts[b + 5] + p_cost;
        update paceline.spent set cum = cum + p_cost where meter = p_meter and part = p_part;
        return p_parts;
    end if;
    select s.cum into v_before from paceline.spent s
        where s.meter = p_meter and s.part = p_part and s.at <= p_at order by s.at desc limit 1;
    update paceline.spent set cum = cum + p_cost where meter = p_meter and part = p_part and at > p_at;
    insert into paceline.spent (meter, part, at, cum)
        values (p_meter, p_part, p_at, coalesce(v_before, p_parts[b + 5]) + p_cost)
        on conflict (meter, part, at) do update set cum = excluded.cum;
    return p_parts;
end $$;

-- Starts of these runs leave their places in the log; they stand at other instants, or (null) did not happen.
create function paceline.move_starts(p_seqs bigint[], p_to bigint[]) returns void language plpgsql as $$
declare
    v_row record;
begin
    for v_row in select e.queue, e.at, e.id, array_agg(j.id) as jobs, count(*) = cardinality(e.jobs) as emptied
        from unnest(p_seqs) as t (seq)
        cross join lateral (select o.queue, o.started_at from paceline.lease o where o.seq = t.seq limit 1) as s
        cross join lateral (select o.id from paceline.job o where o.seq = t.seq limit 1) as j
        cross join lateral (select * from paceline.start o where o.queue = s.queue and o.at = s.started_at
            and j.id = any (o.jobs) order by o.id desc limit 1) as e
        group by e.queue, e.at, e.id, e.jobs
    loop
        if v_row.emptied then
            delete from paceline.start where queue = v_row.queue and at = v_row.at and id = v_row.id;
        else
            update paceline.start s set (jobs, tasks, grps, costs, cost_maps) = (
                select array_agg(t.job order by t.place), array_agg(t.task order by t.place),
                    array_agg(t.grp order by t.place), array_agg(t.cost order by t.place),
                    case when s.cost_maps is not null then array_agg(t.map order by t.place) end
                from unnest(s.jobs, s.tasks, s.grps, s.costs, s.cost_maps) with ordinality
                    as t (job, task, grp, cost, map, place) where not t.job = any (v_row.jobs))
                where s.queue = v_row.queue and s.at = v_row.at and s.id = v_row.id;
        end if;
    end loop;
    if p_to is null then return; end if;
    insert into paceline.start (queue, at, jobs, tasks, grps, costs, cost_maps)
        select j.queue, t.at, array_agg(j.id), array_agg(j.task), array_agg(j.grp), array_agg(j.cost),
            case when bool_or(j.costs is not null) then array_agg(j.costs) end
        from unnest(p_seqs, p_to) as t (seq, at)
        cross join lateral (select * from paceline.job o where o.seq = t.seq limit 1) as j group by j.queue, t.at;
end $$;

-- Handlers and permits began so long ago: their starts count from there. Gives whose lease is lost; said again, it changes
-- nothing.
create function paceline.begun(p_space int, p_now bigint, p_ids text[], p_fences bigint[], p_agos bigint[])
returns paceline.decided language plpgsql /* by index */ as $$
declare
    v_answer paceline.decided := row ('{}'::text[], '{}'::text[], '{}'::text[], 0::bigint);
    v_seqs bigint[];
    v_permits text[];
    v_agos bigint[];
    v_permit_agos bigint[];
begin
    perform paceline.expire(p_space, coalesce(p_now, paceline.clock_us()));
    v_answer.instant := paceline.lock_runs(p_space, p_now, p_ids, p_fences);
    select array_agg(t.seq order by t.place) filter (where t.gate <> 2),
        array_agg(t.ago order by t.place) filter (where t.gate <> 2),
        array_agg(t.permit order by t.place) filter (where t.permit_gate <> 2),
        array_agg(t.ago order by t.place) filter (where t.permit_gate <> 2),
        coalesce(array_agg(t.id order by t.place) filter (where t.gate is null and t.permit_gate is null), '{}')
        into v_seqs, v_agos, v_permits, v_permit_agos, v_answer.lost from (
        select t.id, min(t.place) as place, (array_agg(t.ago order by t.place))[1] as ago, s.seq, s.gate, p.id as permit,
            p.gate as permit_gate
            from unnest(p_ids, p_fences, p_agos) with ordinality as t (id, fence, ago, place)
            left join lateral (select o.seq from paceline.job o where o.id = t.id and o.space = p_space limit 1) as j on true
            left join lateral (select o.seq, o.gate from paceline.lease o where o.seq = j.seq and o.fence = t.fence
                limit 1) as s on true
            left join lateral (select o.id, o.gate from paceline.permit o where o.space = p_space and o.id = t.id
                and t.fence = 0 and j.seq is null limit 1) as p on true
            group by t.id, t.fence, s.seq, s.gate, p.id, p.gate) as t;
    if paceline.begin_starts(p_space, v_seqs, v_permits, v_answer.instant, v_agos, v_permit_agos) then
        v_answer.wakes := array['*'];
        perform paceline.notify(p_space, v_answer.wakes);
    end if;
    return v_answer;
end $$;

-- Count the starts of these runs and permits from now on, or from so long ago, but not from before their stamps. Their keys
-- are locked. True when somebody waited for that.
create function paceline.begin_starts(p_space int, p_seqs bigint[], p_permits text[], p_now bigint,
    p_agos bigint[] default '{}', p_permit_agos bigint[] default '{}') returns boolean language plpgsql as $$
declare
    v_key record;
    v_wake boolean := false;
    v_begins bigint[] := array(select least(p_now, greatest(p_now - coalesce(t.ago, 0), s.started_at))
        from unnest(p_seqs, p_agos) with ordinality as t (seq, ago, place)
        cross join lateral (select o.started_at from paceline.lease o where o.seq = t.seq limit 1) as s order by t.place);
    v_permit_begins bigint[] := array(select least(p_now, greatest(p_now - coalesce(t.ago, 0), s.started_at))
        from unnest(p_permits, p_permit_agos) with ordinality as t (id, ago, place)
        cross join lateral (select o.started_at from paceline.permit o where o.space = p_space and o.id = t.id limit 1) as s
        order by t.place);
begin
    for v_key in select u.meter, array_agg(coalesce(h.taken[u.place], 1) order by h.place) as costs,
            array_agg(case when h.gate = 0 then h.started_at end order by h.place) as ats,
            array_agg(h.begin order by h.place) as begins
        from (select s.*, t.begin, t.place from unnest(p_seqs, v_begins) with ordinality as t (seq, begin, place)
                cross join lateral (select o.meters, o.taken, o.gate, o.started_at from paceline.lease o
                    where o.seq = t.seq limit 1) as s
            union all select s.*, t.begin, 1000000 + t.place
                from unnest(p_permits, v_permit_begins) with ordinality as t (id, begin, place)
                cross join lateral (select o.meters, o.taken, o.gate, o.started_at from paceline.permit o
                    where o.space = p_space and o.id = t.id limit 1) as s) as h
        cross join lateral unnest(h.meters) with ordinality as u (meter, place) group by u.meter order by u.meter
    loop
        v_wake := paceline.begin_under(v_key.meter, v_key.costs, v_key.ats, v_key.begins, p_now) or v_wake;
    end loop;
    if p_seqs is not null then
        perform paceline.move_starts(p_seqs, v_begins);
        update paceline.lease l set started_at = t.begin, gate = 2 from unnest(p_seqs, v_begins) as t (seq, begin)
            where l.seq = t.seq;
    end if;
    if p_permits is not null then
        update paceline.permit p set started_at = t.begin, gate = 2
            from unnest(p_permits, v_permit_begins) as t (id, begin) where p.space = p_space and p.id = t.id;
    end if;
    return v_wake;
end $$;

-- Runs that are about to end, those of them that are open have begun; gives whom to wake. All their keys are locked here,
-- because those of the others are needed next.
create function paceline.begin_open(p_space int, p_seqs bigint[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_open bigint[];
    v_meters bigint[];
begin
    select array_agg(distinct s.seq) filter (where s.gate = 1), array_agg(u.meter) into v_open, v_meters
        from unnest(p_seqs) as t (seq)
        cross join lateral (select o.seq, o.gate, o.meters from paceline.lease o where o.seq = t.seq limit 1) as s
        left join lateral unnest(s.meters) as u (meter) on true;
    perform paceline.lock_keys(v_meters);
    return case when paceline.begin_starts(p_space, v_open, null, p_now) then array['*'] else '{}' end;
end $$;

-- An open permit is given back, so it has begun; gives whom to wake.
create function paceline.begin_permit(p_permit paceline.permit, p_now bigint) returns text[] language plpgsql as $$
begin
    perform paceline.lock_keys(p_permit.meters);
    return case when paceline.begin_starts(p_permit.space, null, array[p_permit.id], greatest(
        coalesce(p_now, paceline.clock_us()), (select max(m.seen_at) from paceline.meters(p_permit.meters) as m)))
        then array['*'] else '{}' end;
end $$;

-- The same under one key, one start after the other: those with an instant were stamped then, the others are open.
-- It is known from when on they count, so whoever waits for that looks again.
create function paceline.begin_under(p_meter bigint, p_costs bigint[], p_ats bigint[], p_begins bigint[], p_now bigint)
returns boolean language plpgsql as $$
declare
    m paceline.meter := paceline.meter_at(p_meter);
    v_begun bigint := 0;
begin
    if m.id is null then return false; end if;
    for i in 1 .. cardinality(p_costs) loop
        if v_begun > 0 and (p_ats[i] is not null or p_begins[i] <> p_begins[i - 1]) then
            m.parts := paceline.count_begin(m.id, m.parts, v_begun, p_begins[i - 1]);
            v_begun := 0;
        end if;
        if p_ats[i] is null then
            m.open := m.open - p_costs[i];
        else
            m.parts := paceline.take_out(m.id, m.parts, p_costs[i], p_ats[i]);
        end if;
        v_begun := v_begun + p_costs[i];
    end loop;
    insert into paceline.arrival (queue, what, lim, grp) select t.queue, 1, m.lim, m.grp from unnest(m.parked) as t (queue);
    m.parts := paceline.count_begin(m.id, m.parts, v_begun, p_begins[cardinality(p_begins)]);
    update paceline.meter set version = version + 1, parts = m.parts,
        open = m.open, awaited = false, parked = '{}', seen_at = greatest(seen_at, p_now)
        where id = m.id and version >= m.version;
    return m.awaited or m.parked <> '{}';
end $$;
