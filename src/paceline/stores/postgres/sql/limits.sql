-- What is said about limits: declare, override, hold, release; and starts that are no jobs.
-- Whatever may let lanes start locks all queues first, then keys in their order.

-- Write one limit, given as JSON; returns 'new', 'scope', 'numbers' or 'same'. Scopes were compared before.
create function paceline.declare_limit(p_space int, p_limit jsonb) returns text language plpgsql as $$
declare
    v_old paceline.lim;
    v_new paceline.lim;
begin
    select * into v_old from paceline.lim where space = p_space and name = p_limit ->> 'name' for update;
    insert into paceline.lim as l (space, name, queues, tasks, by_group, kind, overrides, backoff)
        values (p_space, p_limit ->> 'name', paceline.names(p_limit -> 'queues'), paceline.names(p_limit -> 'tasks'),
            (p_limit ->> 'by_group')::boolean, p_limit -> 'kind', p_limit -> 'overrides',
            nullif(p_limit -> 'backoff', 'null'))
        on conflict (space, name) do update set queues = excluded.queues, tasks = excluded.tasks,
            by_group = excluded.by_group, kind = excluded.kind, overrides = excluded.overrides, backoff = excluded.backoff
        returning * into v_new;
    if v_old.id is null then return 'new'; end if;
    if (v_old.kind, v_old.overrides) is distinct from (v_new.kind, v_new.overrides)
        or v_old.backoff is distinct from v_new.backoff then
        perform paceline.renew(v_new);
        return case when (v_old.queues, v_old.tasks, v_old.by_group)
            is distinct from (v_new.queues, v_new.tasks, v_new.by_group) then 'both' else 'numbers' end;
    end if;
    return case when (v_old.queues, v_old.tasks, v_old.by_group)
        is distinct from (v_new.queues, v_new.tasks, v_new.by_group) then 'scope' else 'same' end;
end $$;

create function paceline.names(p_names jsonb) returns text[] language sql immutable as $$
    select case when jsonb_typeof(p_names) = 'array' then array(select jsonb_array_elements_text(p_names) order by 1) end
$$;

-- The declared limits of a namespace.
create function paceline.limits(p_space int) returns setof jsonb language sql stable as $$
    select jsonb_build_object('name', name, 'queues', to_jsonb(queues), 'tasks', to_jsonb(tasks), 'by_group', by_group,
        'kind', kind, 'overrides', overrides, 'backoff', backoff) from paceline.lim where space = p_space order by id
$$;

-- Declare limits that were compared with `p_known`, what the caller saw; null when somebody changed them meanwhile.
create function paceline.set_limits(p_space int, p_now bigint, p_limits jsonb, p_known jsonb) returns text[]
language plpgsql /* by index */ as $$
declare
    v_limit jsonb;
    v_what text;
    v_widened boolean := false;
    v_wakes text[] := '{}';
begin
    perform paceline.expire(p_space, coalesce(p_now, paceline.clock_us()));
    perform paceline.lock_queues(p_space);
    perform from paceline.space where id = p_space for update;
    if (select coalesce(jsonb_agg(l), '[]') from paceline.limits(p_space) as l) <> p_known then return null; end if;
    for v_limit in select l from jsonb_array_elements(p_limits) as l loop
        v_what := paceline.declare_limit(p_space, v_limit);
        v_widened := v_widened or v_what in ('new', 'scope', 'both');
        if v_what in ('numbers', 'both') then
            perform paceline.limit_opened(p_space, (select id from paceline.lim
                where space = p_space and name = v_limit ->> 'name'), '');
            v_wakes := array['*'];
        end if;
    end loop;
    perform paceline.plan(p_space);
    if v_widened then
        perform paceline.reclassify_all(p_space);
        v_wakes := array['*'];
    end if;
    perform paceline.notify(p_space, v_wakes);
    return v_wakes;
end $$;

create function paceline.drop_limit(p_space int, p_now bigint, p_name text) returns boolean language plpgsql /* by index */ as $$
declare
    v_lim paceline.lim;
    v_keys bigint[];
begin
    perform paceline.lock_queues(p_space);
    delete from paceline.lim where space = p_space and name = p_name returning * into v_lim;
    if not found then return false; end if;
    delete from paceline.override where lim = v_lim.id;
    -- What runs is counted nowhere any more.
    v_keys := array(select id from paceline.key where lim = v_lim.id);
    perform paceline.lock_keys(v_keys);
    delete from paceline.spent where meter = any (v_keys);
    delete from paceline.meter where id = any (v_keys);
    delete from paceline.key where id = any (v_keys);
    perform paceline.plan(p_space);
    perform paceline.reclassify_all(p_space);
    perform paceline.notify(p_space, array['*']);
    return true;
end $$;

create function paceline.set_override(p_space int, p_now bigint, p_limit text, p_group text, p_kind jsonb, p_reason text,
    p_for bigint, p_expires bigint) returns void language plpgsql /* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_lim paceline.lim;
begin
    perform paceline.expire(p_space, v_now);
    v_lim := paceline.require_limit(p_space, p_limit);
    if p_group is not null and not v_lim.by_group then
        perform paceline.fail('wrong group', jsonb_build_object('error', 'not per group', 'limit', p_limit, 'group', p_group));
    end if;
    perform paceline.lock_queues(p_space);
    insert into paceline.override (lim, grp, kind, reason, expires_at)
        values (v_lim.id, coalesce(p_group, ''), p_kind, p_reason, coalesce(v_now + p_for, p_expires))
        on conflict (lim, grp) do update set kind = excluded.kind, reason = excluded.reason,
            expires_at = excluded.expires_at;
    perform paceline.plan(p_space);
    perform paceline.renew(v_lim);
    perform paceline.limit_opened(p_space, v_lim.id, '');
    perform paceline.notify(p_space, array['*']);
end $$;

create function paceline.lift(p_space int, p_now bigint, p_limit text, p_group text) returns boolean
language plpgsql /* by index */ as $$
declare
    v_lim paceline.lim := paceline.require_limit(p_space, p_limit);
begin
    perform paceline.lock_queues(p_space);
    delete from paceline.override where lim = v_lim.id and grp = coalesce(p_group, '');
    if not found then return false; end if;
    perform paceline.plan(p_space);
    perform paceline.renew(v_lim);
    perform paceline.limit_opened(p_space, v_lim.id, '');
    perform paceline.notify(p_space, array['*']);
    return true;
end $$;

create function paceline.overrides(p_space int, p_now bigint) returns setof jsonb language sql volatile as $$
    select jsonb_build_object('limit', l.name, 'group', nullif(o.grp, ''), 'kind', o.kind, 'reason', o.reason,
        'expires_at', o.expires_at)
    from paceline.override o join paceline.lim l on l.id = o.lim where l.space = p_space
        and (o.expires_at is null or o.expires_at > coalesce(p_now, paceline.clock_us())) order by o.number
$$;

create function paceline.hold(p_space int, p_now bigint, p_holds jsonb) returns boolean language plpgsql /* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_hold jsonb;
    v_made boolean := exists (select from jsonb_array_elements(p_holds) as h where jsonb_typeof(h -> 'create') = 'object');
begin
    perform paceline.expire(p_space, v_now);
    if v_made then perform paceline.lock_queues(p_space); end if;
    for v_hold in select h from jsonb_array_elements(p_holds) as h loop
        if coalesce(jsonb_typeof(v_hold -> 'create'), 'null') = 'null' then
            perform paceline.require_limit(p_space, v_hold ->> 'limit');
        end if;
    end loop;
    for v_hold in select h from jsonb_array_elements(p_holds) as h loop
        perform paceline.hold_key(p_space, v_hold, v_now, null);
    end loop;
    if v_made then perform paceline.notify(p_space, array['*']); end if;
    return v_made;
end $$;

create function paceline.release(p_space int, p_now bigint, p_limit text, p_group text) returns void
language plpgsql /* by index */ as $$
declare
    v_lim paceline.lim := paceline.require_limit(p_space, p_limit);
    v_keys bigint[];
begin
    perform paceline.lock_queues(p_space);
    if p_group is null then
        update paceline.lim set held_until = 0, held_reason = null where id = v_lim.id;
    end if;
    v_keys := array(select id from paceline.key where lim = v_lim.id and (p_group is null or grp = p_group));
    perform paceline.lock_keys(v_keys);
    update paceline.meter set version = version + 1, hold_until = 0, hold_reason = null, refusals = 0
        where id = any (v_keys);
    perform paceline.limit_opened(p_space, v_lim.id, coalesce(p_group, ''));
    perform paceline.notify(p_space, array['*']);
end $$;

-- Let a key count from nothing; its hold stays.
create function paceline.forget_starts(p_meter bigint) returns void language plpgsql as $$
begin
    delete from paceline.spent where meter = p_meter;
    update paceline.meter m set version = m.version + 1, parts = paceline.fresh_parts(l, m.grp, m.kind),
        reserved_by = null, reserved_permit = false
        from paceline.lim l where m.id = p_meter and l.id = m.lim;
end $$;

create function paceline.clear(p_space int, p_now bigint, p_limit text, p_group text) returns void language plpgsql /* by index */ as $$
declare
    m paceline.meter;
begin
    perform paceline.lock_queues(p_space);
    m := paceline.require_key(p_space, p_limit, coalesce(p_group, ''));
    perform paceline.forget_starts(m.id);
    update paceline.meter set version = version + 1, hold_until = 0, hold_reason = null, refusals = 0 where id = m.id;
    perform paceline.limit_opened(p_space, m.lim, coalesce(p_group, ''));
    perform paceline.notify(p_space, array['*']);
end $$;

create type paceline.grant_ as (granted boolean, instant bigint, until bigint, leased boolean, wakes text[], guard bigint,
    waited bigint, refused text);

-- Start something that is no job. What was taken back before stays so, whatever is wrong with the call: then `refused` says
-- what, because an error would undo it.
create function paceline.acquire(p_space int, p_now bigint, p_limits text[], p_groups text[], p_costs bigint[],
    p_permit text, p_lease bigint, p_force boolean, p_waits boolean) returns paceline.grant_ language plpgsql /* by index */ as $$
declare
    v_answer paceline.grant_;
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_back record;
begin
    perform paceline.expire(p_space, v_now);
    select * into v_back from paceline.take_back(p_space, v_now, 64, false);
    if v_back.number = 0 then
        return paceline.acquire_all(p_space, p_now, p_limits, p_groups, p_costs, p_permit, p_lease, p_force, p_waits, '{}');
    end if;
    begin
        return paceline.acquire_all(p_space, p_now, p_limits, p_groups, p_costs, p_permit, p_lease, p_force, p_waits,
            v_back.wakes);
    exception when sqlstate 'PL001' then
        get stacked diagnostics v_answer.refused = pg_exception_detail;
    end;
    v_answer.instant := v_now;
    v_answer.wakes := v_back.wakes;
    perform paceline.notify(p_space, v_answer.wakes);
    return v_answer;
end $$;

-- All keys are charged, or none.
create function paceline.acquire_all(p_space int, p_now bigint, p_limits text[], p_groups text[], p_costs bigint[],
    p_permit text, p_lease bigint, p_force boolean, p_waits boolean, p_wakes text[]) returns paceline.grant_
language plpgsql as $$
declare
    v_answer paceline.grant_;
    v_now bigint;
    m paceline.meter;
    v_meters bigint[] := '{}';
    v_until bigint := 0;
    v_leased boolean := false;
    v_lim paceline.lim;
    v_held paceline.permit;
begin
    v_answer.wakes := p_wakes;
    -- Locked in their order, whatever the order of the targets.
    perform (paceline.require_key(p_space, t.name, coalesce(t.grp, ''))).id
        from (select u.name, u.grp from unnest(p_limits, p_groups) as u (name, grp)
            left join paceline.lim l on l.space = p_space and l.name = u.name
            order by u.grp is not null, l.id, u.grp) as t;
    for i in 1 .. cardinality(p_limits) loop
        m := paceline.require_key(p_space, p_limits[i], coalesce(p_groups[i], ''));
        if not paceline.fits(m, p_costs[i]) then
            perform paceline.fail('never fits', jsonb_build_object('error', 'never fits', 'limit', p_limits[i],
                'cost', p_costs[i], 'allowed', paceline.most(m.parts)));
        end if;
        v_meters := v_meters || m.id;
    end loop;
    v_now := greatest(coalesce(p_now, paceline.clock_us()),
        (select max(seen_at) from paceline.meters(v_meters)));
    for i in 1 .. cardinality(v_meters) loop
        m := paceline.meter_at(v_meters[i]);
        v_until := greatest(v_until, paceline.opens_at(m, p_costs[i]));
        if m.reserved_by is not null and (m.reserved_by <> p_permit or not m.reserved_permit)
            and v_now < m.reserved_deadline then
            -- When it could start by now, the room is kept until it does, or until its time to do so is over.
            v_until := greatest(v_until,
                case when m.reserved_until > v_now then m.reserved_until else m.reserved_deadline end);
        end if;
        v_leased := v_leased or m.slots < paceline.never();
        v_answer.guard := least(v_answer.guard, m.guard);
    end loop;
    v_answer.waited := paceline.waited(v_now);
    if v_until > v_now and not p_force then
        if v_until >= paceline.never() then
            perform paceline.await_keys(v_meters);
        end if;
        if p_waits then perform paceline.reserve_permit(v_meters, p_costs, p_permit, v_now); end if;
        v_answer := row (false, v_now, case when v_until < paceline.never() then v_until
            else paceline.next_lease_end(p_space) end, false, v_answer.wakes, paceline.never(), v_answer.waited);
        perform paceline.notify(p_space, v_answer.wakes);
        return v_answer;
    end if;
    if p_waits then v_answer.wakes := v_answer.wakes || paceline.drop_reservations(p_space, p_permit, true); end if;
    if v_leased then
        -- Asked for once more under the same name: one name holds one permit.
        select * into v_held from paceline.permit where space = p_space and id = p_permit for update;
        if found then perform paceline.end_permit(v_held, false); end if;
    end if;
    for i in 1 .. cardinality(v_meters) loop
        m := paceline.meter_at(v_meters[i]);
        update paceline.meter set version = version + 1, parts = paceline.count_start(m, p_costs[i], v_now),
            seen_at = v_now, in_flight = in_flight + v_leased::int,
            reserved_by = case when v_leased and reserved_permit and reserved_by = p_permit then null else reserved_by end
            where id = m.id and version >= m.version;
    end loop;
    if v_leased then
        insert into paceline.permit (space, id, started_at, until, meters, taken)
            values (p_space, p_permit, v_now, v_now + p_lease, v_meters, p_costs)
            on conflict (space, id) do update set started_at = excluded.started_at, until = excluded.until,
                meters = excluded.meters, taken = excluded.taken, gate = 0;
    end if;
    v_answer := row (true, v_now, 0, v_leased, v_answer.wakes, v_answer.guard, v_answer.waited);
    perform paceline.notify(p_space, v_answer.wakes);
    return v_answer;
end $$;

-- A waiter of a big cost that only windows refuse keeps the room free, or smaller ones would always be first.
create function paceline.reserve_permit(p_meters bigint[], p_costs bigint[], p_permit text, p_now bigint) returns void
language plpgsql as $$
begin
    if exists (select from unnest(p_meters, p_costs) as t (id, cost), lateral paceline.meter_at(t.id) as m
        where paceline.opens_at(m, t.cost) > p_now and (t.cost <= 1 or not paceline.lacks_only_time(m, t.cost, p_now)
            or (m.reserved_by is not null and not (m.reserved_permit and m.reserved_by = p_permit)))) then
        return;
    end if;
    perform paceline.save_reservation(m.id, p_permit, true, t.cost, p_now)
        from unnest(p_meters, p_costs) with ordinality as t (id, cost, place),
            lateral paceline.meter_at(t.id) as m
        where paceline.opens_at(m, t.cost) > p_now and m.reserved_by is null;
end $$;

-- Whoever kept room free does not need it any more: others may have it.
create function paceline.drop_reservations(p_space int, p_holder text, p_permit boolean) returns text[]
language plpgsql as $$
declare
    m paceline.meter;
    v_wakes text[] := '{}';
begin
    for m in select k.* from paceline.meter k join paceline.lim l on l.id = k.lim
        where l.space = p_space and k.reserved_by = p_holder and k.reserved_permit = p_permit order by k.id
    loop
        perform paceline.give_up(p_space, m);
        v_wakes := array['*'];
    end loop;
    return v_wakes;
end $$;

create function paceline.give_back(p_space int, p_now bigint, p_permits text[]) returns text[] language plpgsql /* by index */ as $$
declare
    v_id text;
    v_permit paceline.permit;
    v_wakes text[] := '{}';
begin
    perform paceline.expire(p_space, coalesce(p_now, paceline.clock_us()));
    foreach v_id in array p_permits loop
        v_wakes := v_wakes || paceline.drop_reservations(p_space, v_id, true);
        select * into v_permit from paceline.permit where space = p_space and id = v_id for update;
        continue when not found;
        if v_permit.gate = 1 then
            v_wakes := v_wakes || paceline.begin_permit(v_permit, p_now);
            v_permit.gate := 2;
        end if;
        if paceline.end_permit(v_permit, true) then v_wakes := v_wakes || '*'::text; end if;
    end loop;
    perform paceline.notify(p_space, v_wakes);
    return v_wakes;
end $$;
