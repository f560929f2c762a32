-- Keys: found or made, changed, held; and lanes that wait for them.

create function paceline.fail(p_what text, p_detail jsonb) returns void language plpgsql as $$
begin
    raise exception '%', p_what using errcode = 'PL001', detail = p_detail::text;
end $$;

create function paceline.clock_us() returns bigint language sql volatile as $$
    select (extract(epoch from clock_timestamp()) * 1000000)::bigint
$$;

create function paceline.cost_under(p_cost bigint, p_costs jsonb, p_limit text) returns bigint
language sql immutable as $$
    select case when p_costs is null then p_cost else coalesce((p_costs ->> p_limit)::bigint, 1) end
$$;

create function paceline.require_limit(p_space int, p_name text) returns paceline.lim language plpgsql as $$
declare
    v_lim paceline.lim;
begin
    select * into v_lim from paceline.lim where space = p_space and name = p_name;
    if not found then
        perform paceline.fail('no limit', jsonb_build_object('error', 'no limit', 'limit', p_name, 'known',
            (select coalesce(jsonb_agg(name order by name), '[]') from paceline.lim where space = p_space)));
    end if;
    return v_lim;
end $$;

-- The numbers of one key: the operator's word first, then what code declared.
create function paceline.kind_of(p_lim paceline.lim, p_grp text) returns jsonb language plpgsql stable as $$
declare
    v_kind jsonb;
begin
    select o.kind into v_kind from paceline.override o
        where o.lim = p_lim.id and o.grp in (p_grp, '') order by o.grp desc limit 1;
    if v_kind is not null then return v_kind; end if;
    if p_grp <> '' and p_lim.overrides ? p_grp then return p_lim.overrides -> p_grp; end if;
    return p_lim.kind;
end $$;

-- The numbers of one key that rule again when an operator's word ends: null without one, empty where nothing limits then.
create function paceline.beneath(p_lim paceline.lim, p_grp text) returns jsonb language sql stable as $$
    select jsonb_path_query_array(jsonb_agg(s.kind order by s.place), '$[*][*]') from (
        select o.kind, 1 as place from (select kind from paceline.override
            where lim = p_lim.id and grp in (p_grp, '') order by grp desc offset 1) as o
        union all select case when p_grp <> '' and p_lim.overrides ? p_grp then p_lim.overrides -> p_grp
            else p_lim.kind end, 2
            where exists (select from paceline.override where lim = p_lim.id and grp in (p_grp, ''))) as s
$$;

-- The parts of a key that counted nothing.
create function paceline.fresh_parts(p_lim paceline.lim, p_grp text, p_kind jsonb) returns bigint[] language sql stable as $$
    select n.parts || paceline.remember(n.parts, paceline.new_parts(paceline.beneath(p_lim, p_grp)), p_grp <> '')
    from (select paceline.new_parts(p_kind) as parts) as n
$$;

-- The key of a limit, made when first needed, and locked. Whoever holds the locks in their order may wait for it.
create function paceline.meter_of(p_lim int, p_grp text) returns paceline.meter language plpgsql as $$
declare
    m paceline.meter;
    v_id bigint;
    v_lim paceline.lim;
    v_kind jsonb;
    v_parts bigint[];
begin
    loop
        select id into v_id from paceline.key where lim = p_lim and grp = p_grp;
        if found then
            select * into m from paceline.meter where id = v_id order by version desc limit 1 for no key update;
            if found then return m; end if;
        end if;
        -- Whoever drops the limit waits until its new key can be seen.
        select * into v_lim from paceline.lim where id = p_lim for key share;
        if not found then return null; end if;
        -- Somebody else who makes it is waited for; then it is there, or free again.
        insert into paceline.key (lim, grp) values (p_lim, p_grp) on conflict (lim, grp) do nothing returning id into v_id;
        continue when not found;
        v_kind := paceline.kind_of(v_lim, p_grp);
        v_parts := paceline.fresh_parts(v_lim, p_grp, v_kind);
        insert into paceline.meter (id, lim, grp, kind, parts, slots, guard, hold_until, hold_reason)
            values (v_id, p_lim, p_grp, v_kind, v_parts, paceline.slots_of(v_parts), paceline.guard_of(v_parts),
                v_lim.held_until, v_lim.held_reason)
            returning * into m;
        return m;
    end loop;
end $$;

-- A limit that is per group has a key for each, any other one for all; those that cover no jobs have both.
create function paceline.check_group(p_lim paceline.lim, p_grp text) returns void language plpgsql as $$
begin
    if not (p_lim.queues is not null and cardinality(p_lim.queues) = 0) and p_lim.by_group <> (p_grp <> '') then
        perform paceline.fail('wrong group', jsonb_build_object('error', 'wrong group', 'limit', p_lim.name,
            'group', nullif(p_grp, ''), 'by_group', p_lim.by_group));
    end if;
end $$;

create function paceline.require_key(p_space int, p_name text, p_grp text) returns paceline.meter language plpgsql as $$
declare
    v_lim paceline.lim := paceline.require_limit(p_space, p_name);
    m paceline.meter;
begin
    perform paceline.check_group(v_lim, p_grp);
    m := paceline.meter_of(v_lim.id, p_grp);
    -- It was dropped at this very moment, and perhaps declared anew.
    if m.id is null then return paceline.require_key(p_space, p_name, p_grp); end if;
    return m;
end $$;

-- Keep the room free, for one window at most: open starts leave at an instant that nobody knows.
create function paceline.save_reservation(p_meter bigint, p_by text, p_permit boolean, p_cost bigint, p_now bigint)
returns void language plpgsql as $$
declare
    m paceline.meter;
begin
    m := paceline.meter_at(p_meter);
    update paceline.meter set version = version + 1, reserved_by = p_by, reserved_permit = p_permit,
        reserved_until = least(paceline.opens_at(m, p_cost), p_now + paceline.longest_rate(m.parts)),
        reserved_deadline = p_now + paceline.longest_rate(m.parts),
        reserved_at = nextval('paceline.filing') where id = p_meter and version >= m.version;
end $$;

-- Lanes under a key, in one queue: those of its group whose class meets the limit.
-- p_what 1: parked ones are ready again; 2: blocked ones too. Needs the queue's lock. True when there was one.
create function paceline.look_again(p_queue int, p_lim int, p_grp text, p_what int) returns boolean
language plpgsql as $$
declare
    v_rows tid[];
    v_classes int[];
begin
    if p_grp = '' then
        v_classes := array(select id from paceline.class where queue = p_queue and p_lim = any (grouped));
        if v_classes = '{}' then return false; end if;
        select array_agg(l.ctid) into v_rows from paceline.grp g cross join lateral unnest(g.lanes) as u (id)
            cross join lateral (select o.ctid, o.* from paceline.lane o where o.id = u.id order by o.version desc limit 1) as l
            where g.queue = p_queue and l.class = any (v_classes) and l.waiting > 0
            and (l.state = paceline.parked() or (l.state = paceline.blocked() and p_what = paceline.key_opened()));
    else
        select array_agg(l.ctid) into v_rows from paceline.grp g cross join lateral unnest(g.lanes) as u (id)
            cross join lateral (select o.ctid, o.* from paceline.lane o where o.id = u.id order by o.version desc limit 1) as l
            where g.queue = p_queue and g.name = p_grp and l.waiting > 0 and (l.state = paceline.parked() or (l.state = paceline.blocked() and p_what = paceline.key_opened()))
            and exists (select from paceline.class c where c.id = l.class and p_lim = any (c.grouped));
    end if;
    if v_rows is null then return false; end if;
    perform paceline.make_ready(v_rows);
    return true;
end $$;

-- Lanes of one queue are ready again, wherever they stand.
create function paceline.make_ready(p_rows tid[]) returns void language plpgsql as $$
declare
    s paceline.queue_state;
    v_lane paceline.lane;
begin
    for v_lane in update paceline.lane set version = version + 1, state = paceline.ready() where ctid = any (p_rows) returning * loop
        if s.queue is null then s := paceline.queue_state_of(v_lane.queue); end if;
        s := paceline.lowered(s, v_lane.class, v_lane.turn, v_lane.filed);
    end loop;
    perform paceline.save_queue_state(s);
end $$;

-- The numbers, the hold or the starts of a limit changed: whoever waits for it looks again. Needs all queue locks.
create function paceline.limit_opened(p_space int, p_lim int, p_grp text) returns void language sql as $$
    select paceline.look_again(q.id, p_lim, p_grp, 2) from paceline.queue q where q.space = p_space order by q.id
$$;

create function paceline.lock_queues(p_space int) returns void language plpgsql as $$
begin
    perform from paceline.queue where space = p_space order by id for no key update;
end $$;

-- Give the keys of a limit the numbers that hold now.
create function paceline.renew(p_lim paceline.lim) returns void language sql as $$
    select paceline.change_meter(m.id, paceline.kind_of(p_lim, m.grp), paceline.beneath(p_lim, m.grp))
    from (select id, grp from paceline.key where lim = p_lim.id order by grp <> '', id) as m
$$;

-- Overrides whose time is over end. Called first in every step, before any lock.
create function paceline.expire(p_space int, p_now bigint) returns boolean language plpgsql as $$
declare
    v_lim paceline.lim;
    v_over record;
begin
    perform from paceline.space where id = p_space and next_expiry <= p_now;
    if not found then return false; end if;
    perform paceline.lock_queues(p_space);
    for v_over in delete from paceline.override o using paceline.lim l
        where l.space = p_space and o.lim = l.id and o.expires_at <= p_now returning o.lim
    loop
        select * into v_lim from paceline.lim where id = v_over.lim;
        perform paceline.renew(v_lim);
        perform paceline.limit_opened(p_space, v_over.lim, '');
    end loop;
    perform paceline.plan(p_space);
    perform paceline.notify(p_space, array['*']);
    return true;
end $$;

-- What a claim needs to know of all limits: when the next override ends.
create function paceline.plan(p_space int) returns void language sql as $$
    update paceline.space set
        next_expiry = coalesce((select min(o.expires_at) from paceline.override o join paceline.lim l on l.id = o.lim
            where l.space = p_space), paceline.never())
    where id = p_space
$$;

-- How long a limit is held after the k-th refusal in a row.
create function paceline.hold_for(p_backoff jsonb, p_refusals int, p_jitter double precision) returns bigint
language plpgsql immutable as $$
declare
    v_first numeric := coalesce((p_backoff ->> 'initial')::numeric, 1000000);
    v_times numeric := coalesce((p_backoff ->> 'multiplier')::numeric, 2);
    v_most bigint := coalesce((p_backoff ->> 'maximum')::bigint, 600000000);
    v_delay bigint;
begin
    begin
        if v_times = trunc(v_times) then
            v_delay := least(v_first * v_times ^ (least(p_refusals, 400) - 1), v_most);
        else
            v_delay := least(trunc(v_first::float8 * power(v_times::float8, (p_refusals - 1)::float8)), v_most);
        end if;
    exception when numeric_value_out_of_range then
        v_delay := v_most;
    end;
    return v_delay + trunc(v_delay::float8 * p_jitter);
end $$;

-- Hold one key; without a time the limit's own backoff decides. `p_hold` is a Hold as JSON.
create function paceline.hold_key(p_space int, p_hold jsonb, p_now bigint, p_started_at bigint) returns void
language plpgsql as $$
declare
    v_lim paceline.lim;
    m paceline.meter;
    v_grp text := coalesce(p_hold ->> 'group', '');
    v_until bigint := coalesce((p_hold ->> 'until')::bigint, p_now + (p_hold ->> 'for')::bigint);
    v_reason text := p_hold ->> 'reason';
begin
    if p_hold -> 'create' is not null and jsonb_typeof(p_hold -> 'create') = 'object'
        and not exists (select from paceline.lim where space = p_space and name = p_hold ->> 'limit') then
        perform paceline.declare_limit(p_space, p_hold -> 'create');
        perform paceline.reclassify_all(p_space);
    end if;
    v_lim := paceline.require_limit(p_space, p_hold ->> 'limit');
    if v_lim.by_group and v_grp = '' then
        update paceline.lim set held_until = coalesce(v_until, p_now), held_reason = v_reason
            where id = v_lim.id and held_until < coalesce(v_until, p_now);
        perform paceline.lock_keys(array(select id from paceline.key where lim = v_lim.id));
        for m in select o.* from paceline.key k, lateral paceline.meter_at(k.id) as o where k.lim = v_lim.id order by k.id
        loop
            perform paceline.hold_meter(m, v_lim.backoff, v_until, (p_hold ->> 'jitter')::float8, v_reason, p_now,
                p_started_at);
        end loop;
    else
        m := paceline.require_key(p_space, v_lim.name, v_grp);
        perform paceline.hold_meter(m, v_lim.backoff, v_until, (p_hold ->> 'jitter')::float8, v_reason, p_now,
            p_started_at);
    end if;
end $$;

create function paceline.hold_meter(m paceline.meter, p_backoff jsonb, p_until bigint, p_jitter double precision,
    p_reason text, p_now bigint, p_started_at bigint) returns void language plpgsql as $$
declare
    v_until bigint := p_until;
    v_refusals int := m.refusals;
begin
    if p_until is null then
        -- It ran already when the hold was made: the same refusal, heard once more.
        if p_started_at is not null and m.refusals > 0 and p_started_at <= m.held_at then return; end if;
        v_refusals := m.refusals + 1;
        v_until := p_now + paceline.hold_for(p_backoff, v_refusals, p_jitter);
    end if;
    update paceline.meter set version = version + 1, held_at = p_now, refusals = v_refusals,
        hold_reason = case when v_until > hold_until then p_reason else hold_reason end,
        hold_until = greatest(hold_until, v_until) where id = m.id and version >= m.version;
end $$;
