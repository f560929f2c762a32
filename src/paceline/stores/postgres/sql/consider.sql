-- Whether one job may start: its keys, and what refuses it.

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
    if p_until >= paceline.never() then
        perform paceline.file_lane(p_lane, paceline.parked(), null);
        v_lane := paceline.lane_of(p_lane);
        select g.name into v_name from paceline.grp g where g.id = v_lane.grp;
        for m in select k.* from paceline.class c cross join lateral paceline.keys_of(c.grouped, v_name) as k
            where c.id = v_lane.class and v_name <> '' and not v_lane.queue = any (k.parked)
        loop
            update paceline.meter set version = version + 1, parked = parked || v_lane.queue
                where id = m.id and version >= m.version;
        end loop;
    else
        perform paceline.file_lane(p_lane, paceline.blocked(), p_until);
    end if;
end $$;

-- When the limits of a lane's group admit a start of cost 1.
create function paceline.group_opens(p_lane bigint) returns bigint language sql volatile as $$
    select coalesce(max(paceline.opens_at(m, 1)), 0) from paceline.lane_of(p_lane) as l
        cross join lateral (select o.grouped from paceline.class o where o.id = l.class limit 1) as d
        cross join lateral (select o.name from paceline.grp o where o.id = l.grp limit 1) as g
        cross join lateral paceline.keys_of(d.grouped, g.name) as m where g.name <> ''
$$;

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
        -- Its group may start nothing at all now, whatever it costs and whichever worker asks.
        c.budget := c.budget - 1;
        perform paceline.file_until(h.lane, v_closed);
        return;
    end if;
    if c.most is not null and v_cost > c.most then
        c.skipped := c.skipped || h.lane;
        perform paceline.file_lane(h.lane, paceline.parked(), null);
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
            perform paceline.file_lane(h.lane, paceline.parked(), null);
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
        select meters || coalesce(array_agg(u.id order by u.place), '{}'),
            taken || coalesce(array_agg(paceline.cost_under(p_job.cost, p_job.costs, u.name) order by u.place), '{}')
            into meters, taken from unnest(c.also, c.also_names) with ordinality as u (id, name, place)
            where not u.id = any (meters);
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
