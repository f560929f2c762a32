-- Numbers about queues and limits. Everything here only reads: it takes no lock and works in a read-only transaction.

create function paceline.counts(p_space int, p_now bigint, p_queue text) returns bigint[] language plpgsql /* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_queue int;
begin
    select id into v_queue from paceline.queue where space = p_space and name = p_queue;
    return (select array[
        coalesce((select waiting from paceline.queue_state where queue = v_queue order by version desc limit 1), 0)
            + coalesce((select sum(number) from paceline.arrival where queue = v_queue and what = 0), 0)
            + (select count(*) from paceline.delayed where queue = v_queue and due_at <= v_now),
        (select count(*) from paceline.delayed where queue = v_queue and due_at > v_now),
        (select count(*) from paceline.lease where queue = v_queue),
        t.completed, t.failed, t.cancelled]
        from (select coalesce(sum(o.completed), 0)::bigint as completed, coalesce(sum(o.failed), 0)::bigint as failed,
            coalesce(sum(o.cancelled), 0)::bigint as cancelled from paceline.tally o where o.queue = v_queue) as t);
end $$;

-- Every queue that has jobs or a pause.
create function paceline.queues(p_space int, p_now bigint) returns table (name text, counts bigint[], groups bigint,
    paused boolean, tasks text[], grps text[]) language sql volatile /* by index */ as $$
    select * from (
        select q.name, paceline.counts(p_space, p_now, q.name) as counts, paceline.groups_waiting(q.id), q.paused,
            array(select t.name from paceline.task t where t.queue = q.id and t.paused order by t.name) as tasks,
            array(select g.name from paceline.grp g where g.queue = q.id and g.paused order by g.name) as grps
        from paceline.queue q where q.space = p_space) as o
    where o.paused or o.tasks <> '{}' or o.grps <> '{}' or (select sum(n) from unnest(o.counts) as n) > 0
    order by o.name
$$;

-- Groups with jobs that wait: in lanes, or arrived but not yet taken in.
create function paceline.groups_waiting(p_queue int) returns bigint language sql volatile /* by index */ as $$
    select coalesce((select n.groups from paceline.newest_queue_state(p_queue) as n), 0) + (
        select count(*) from (select distinct coalesce(o.grp, '') as name from paceline.arrival o
            where o.queue = p_queue and o.what = paceline.jobs_came()) as a
        where not exists (select from (select * from paceline.grp o where o.queue = p_queue and o.name = a.name limit 1) as g
            cross join lateral paceline.lanes_of(g.lanes) as l where l.waiting > 0))
$$;

-- How many jobs wait under a key: in lanes, and arrived but not yet taken in.
create function paceline.waiting_under(p_space int, p_lim paceline.lim, p_group text) returns bigint
language plpgsql as $$
declare
    v_lanes bigint;
begin
    if p_group is null then
        -- Under a limit that is per group, jobs without a group do not count.
        select sum(u.waiting - coalesce(l.waiting, 0)) into v_lanes from paceline.queue q
            cross join lateral (select * from paceline.newest_queue_state(q.id)) as n
            cross join lateral unnest(n.class_ids, n.class_waiting) as u (class, waiting)
            cross join lateral (select from paceline.class o where o.id = u.class and p_lim.id = any (o.limits) limit 1) as c
            left join lateral (select o.lanes[array_position(o.classes, u.class)] as id from paceline.grp o
                where p_lim.by_group and o.queue = q.id and o.name = '' limit 1) as g on true
            left join lateral (select o.waiting from paceline.lane o where o.id = g.id order by o.version desc limit 1)
                as l on true
            where q.space = p_space and u.waiting > 0;
    else
        select sum(l.waiting) into v_lanes from paceline.queue q
            cross join lateral (select * from paceline.grp o where o.queue = q.id and o.name = p_group limit 1) as g
            cross join lateral paceline.lanes_of(g.lanes) as l
            cross join lateral (select from paceline.class o where o.id = l.class and p_lim.id = any (o.limits) limit 1) as c
            where q.space = p_space;
    end if;
    return coalesce(v_lanes, 0) + coalesce((
        select sum(a.number) from paceline.queue q
        join paceline.arrival a on a.queue = q.id and a.what = paceline.jobs_came()
        where q.space = p_space and (p_lim.queues is null or q.name = any (p_lim.queues))
            and (p_lim.tasks is null or a.task = any (p_lim.tasks))
            and case when p_group is not null then a.grp = p_group
                else coalesce(a.grp, '') <> '' or not p_lim.by_group end), 0);
end $$;

-- How full a key is, and when it opens for a start of this cost.
create function paceline.usage_of(p_space int, p_lim paceline.lim, p_group text, p_cost bigint, p_now bigint)
returns jsonb language plpgsql as $$
declare
    m paceline.meter;
    v_over int := 0;
    v_full record;
begin
    select * into m from paceline.keys_of(array[p_lim.id], coalesce(p_group, ''));
    if not found then
        m.kind := paceline.kind_of(p_lim, coalesce(p_group, ''));
        m.parts := paceline.new_parts(m.kind);
        m.slots := paceline.slots_of(m.parts);
        m.in_flight := 0;
        m.open := 0;
        m.hold_until := p_lim.held_until;
        m.hold_reason := p_lim.held_reason;
    else
        -- A lease that is over counts until a claim takes it back, but nobody who asks has to wait for it.
        select count(*) into v_over from (
            select s.meters from paceline.queue q join paceline.lease s on s.queue = q.id and s.until <= p_now
                where q.space = p_space
            union all select meters from paceline.permit where space = p_space and until <= p_now) as o
            where m.id = any (o.meters);
        m.in_flight := m.in_flight - v_over;
    end if;
    select * into v_full from paceline.used_and_allowed(m, p_now, m.in_flight);
    return jsonb_build_object('limit', p_lim.name, 'group', p_group, 'kind', m.kind, 'used', v_full.used,
        'allowed', v_full.allowed, 'hold_until', case when m.hold_until > p_now then m.hold_until else 0 end,
        'hold_reason', m.hold_reason, 'opens_at', paceline.opens_at(m, p_cost),
        'waiting', paceline.waiting_under(p_space, p_lim, p_group), 'now', p_now, 'reserved_by', m.reserved_by,
        'cost', p_cost, 'open', m.open, 'full', m.in_flight >= m.slots);
end $$;

create function paceline.usage(p_space int, p_now bigint, p_limit text, p_group text) returns jsonb
language plpgsql /* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_lim paceline.lim := paceline.require_limit(p_space, p_limit);
begin
    if not (v_lim.by_group and p_group is null) then perform paceline.check_group(v_lim, coalesce(p_group, '')); end if;
    return paceline.usage_of(p_space, v_lim, p_group, 1, v_now)
        || jsonb_build_object('expired', paceline.has_expired(p_space, v_now));
end $$;

-- Whether an override is over that still rules. A read changes nothing: it says so, and whoever asked calls `expire` first.
create function paceline.has_expired(p_space int, p_now bigint) returns boolean language sql stable as $$
    select exists (select from paceline.space where id = p_space and next_expiry <= p_now)
$$;
