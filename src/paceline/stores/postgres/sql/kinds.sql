-- What a key admits: the port of limits/*.py and admission.py. No clock, no randomness; `spent` is read and written.
-- Behind the parts of a key's own kinds there may be one more (5): a log of what other kinds of it count, which rule again
-- when an override ends, or ruled before. It is charged and never asked; its eighth number is the longest interval between
-- starts. The eighth number of a rate is its guard, which its window includes.

create function paceline.new_parts(p_kind jsonb) returns bigint[] language plpgsql immutable as $$
declare
    v_part jsonb;
    v_parts bigint[] := '{}';
begin
    for v_part in select * from jsonb_array_elements(p_kind) loop
        v_parts := v_parts || case v_part ->> 'kind'
            when 'rate' then array[1, (v_part ->> 'max')::bigint,
                (v_part ->> 'per')::bigint + coalesce((v_part ->> 'guard')::bigint, 0), 0, 0, 0, -1,
                coalesce((v_part ->> 'guard')::bigint, 0)]
            when 'concurrency' then array[2, (v_part ->> 'max')::bigint, 0, 0, 0, 0, 0, 0]
            when 'delay' then array[3, 1, (v_part ->> 'gap')::bigint, -1, 0, 1, 0, 0]
            when 'spacing' then array[4, (v_part ->> 'max')::bigint, (v_part ->> 'per')::bigint, -1, 0, 1, 0, 0]
        end;
    end loop;
    return v_parts;
end $$;

create function paceline.slots_of(p_parts bigint[]) returns bigint language sql immutable as $$
    select coalesce(min(p_parts[i * 8 + 2]), paceline.never())
    from generate_series(0, cardinality(p_parts) / 8 - 1) as i where p_parts[i * 8 + 1] = 2
$$;

-- A handler that begins later than this after its start asks first: the smallest guard of these rates.
create function paceline.guard_of(p_parts bigint[]) returns bigint language sql immutable as $$
    select coalesce(min(p_parts[i * 8 + 8]), paceline.never())
    from generate_series(0, cardinality(p_parts) / 8 - 1) as i where p_parts[i * 8 + 1] = 1 and p_parts[i * 8 + 8] > 0
$$;

-- The next instant of an evenly spaced part, in units of 1 / max microseconds.
create function paceline.spacing_due(p_max bigint, p_per bigint, p_at bigint, p_carry bigint, p_cost bigint)
returns numeric language sql immutable as $$
    select p_at::numeric * p_max + p_carry + p_cost::numeric * p_per
$$;

-- When one part with a memory admits a start of this cost.
create function paceline.part_opens(p_meter bigint, p_parts bigint[], p_part int, p_cost bigint) returns bigint
language plpgsql stable as $$
declare
    b int := p_part * 8;
    v_leave bigint;
    v_at bigint;
begin
    if p_parts[b + 1] = 1 then
        v_leave := p_parts[b + 4] - p_parts[b + 2] + p_cost;
        if v_leave <= 0 then return 0; end if;
        if v_leave > p_parts[b + 4] then return paceline.never(); end if;
        if v_leave <= p_parts[b + 5] then return p_parts[b + 6] + p_parts[b + 3]; end if;
        select s.at into v_at from paceline.spent s
            where s.meter = p_meter and s.part = p_part and s.cum >= v_leave order by s.cum limit 1;
        return v_at + p_parts[b + 3];
    elsif p_parts[b + 4] < 0 then
        return 0;
    elsif p_parts[b + 1] = 3 then
        return p_parts[b + 4] + p_parts[b + 3];
    end if;
    -- A large cost may lie beyond the end of time.
    return least(div(paceline.spacing_due(p_parts[b + 2], p_parts[b + 3], p_parts[b + 4], p_parts[b + 5], p_parts[b + 6])
        + p_parts[b + 2] - 1, p_parts[b + 2]), paceline.never());
end $$;

-- As far as time decides. Open starts are in every window.
create function paceline.opens_in_time(m paceline.meter, p_cost bigint) returns bigint language plpgsql stable as $$
declare
    v_at bigint := m.hold_until;
begin
    for i in 0 .. cardinality(m.parts) / 8 - 1 loop
        if m.parts[i * 8 + 1] in (1, 3, 4) then
            v_at := greatest(v_at, paceline.part_opens(m.id, m.parts, i, p_cost + m.open));
        end if;
    end loop;
    return v_at;
end $$;

create function paceline.opens_at(m paceline.meter, p_cost bigint) returns bigint language plpgsql stable as $$
begin
    if m.in_flight >= m.slots then return paceline.never(); end if;
    return paceline.opens_in_time(m, p_cost);
end $$;

create function paceline.fits(m paceline.meter, p_cost bigint) returns boolean language sql immutable as $$
    select not exists (select from generate_series(0, cardinality(m.parts) / 8 - 1) as i
        where m.parts[i * 8 + 1] = 1 and m.parts[i * 8 + 2] < p_cost)
$$;

create function paceline.most(p_parts bigint[]) returns bigint language sql immutable as $$
    select coalesce(min(p_parts[i * 8 + 2]), paceline.never())
    from generate_series(0, cardinality(p_parts) / 8 - 1) as i where p_parts[i * 8 + 1] = 1
$$;

-- Count a start under one part with a memory; gives its eight numbers anew.
create function paceline.part_charge(p_meter bigint, p_parts bigint[], p_part int, p_cost bigint, p_now bigint)
returns bigint[] language plpgsql as $$
declare
    b int := p_part * 8;
    v_due numeric;
    v_cost bigint := p_cost;
    v_at bigint;
    v_row record;
begin
    if p_parts[b + 1] in (1, 5) then
        v_at := greatest(p_now, p_parts[b + 7]);
        p_parts[b + 4] := p_parts[b + 4] + p_cost;
        insert into paceline.spent (meter, part, at, cum) values (p_meter, p_part, v_at, p_parts[b + 4])
            on conflict (meter, part, at) do update set cum = excluded.cum;
        if p_parts[b + 7] < v_at then
            p_parts[b + 7] := v_at;
            p_parts := paceline.trim_spent(p_meter, p_parts, p_part, p_now, 2);
        end if;
    elsif p_parts[b + 1] = 3 then
        p_parts[b + 4] := greatest(p_now, p_parts[b + 4]);
        p_parts[b + 5] := 0;
        p_parts[b + 6] := 1;
    elsif p_parts[b + 1] = 4 then
        v_due := paceline.spacing_due(p_parts[b + 2], p_parts[b + 3], p_parts[b + 4], p_parts[b + 5], p_parts[b + 6]);
        if p_parts[b + 4] >= 0 and div(v_due + p_parts[b + 2] - 1, p_parts[b + 2]) = p_now then
            p_parts[b + 4] := div(v_due, p_parts[b + 2]);
            p_parts[b + 5] := v_due - p_parts[b + 4]::numeric * p_parts[b + 2];
        else
            if p_parts[b + 4] >= 0 and v_due > p_now::numeric * p_parts[b + 2] then
                v_cost := greatest(v_cost,
                    div(v_due - p_now::numeric * p_parts[b + 2] + p_parts[b + 3] - 1, p_parts[b + 3]));
            end if;
            p_parts[b + 4] := greatest(p_now, p_parts[b + 4]);
            p_parts[b + 5] := 0;
        end if;
        p_parts[b + 6] := v_cost;
    end if;
    return p_parts;
end $$;

-- Fold the oldest entries of a rate that no decision can ask for and that have left its window: a few with every new one.
create function paceline.trim_spent(p_meter bigint, p_parts bigint[], p_part int, p_now bigint, p_most int)
returns bigint[]
language plpgsql as $$
declare
    b int := p_part * 8;
    v_row record;
begin
    if p_parts[b + 4] - p_parts[b + 2] <= p_parts[b + 5] then return p_parts; end if;
    for v_row in delete from paceline.spent s where s.meter = p_meter and s.part = p_part and s.cum in (
        select o.cum from paceline.spent o where o.meter = p_meter and o.part = p_part and o.cum > p_parts[b + 5]
            and o.cum <= p_parts[b + 4] - p_parts[b + 2] and o.at <= p_now - p_parts[b + 3]
            order by o.cum limit p_most)
        returning s.at, s.cum
    loop
        p_parts[b + 5] := greatest(p_parts[b + 5], v_row.cum);
        p_parts[b + 6] := greatest(p_parts[b + 6], v_row.at);
    end loop;
    return p_parts;
end $$;

-- Count a start that holds no lease.
create function paceline.count_start(m paceline.meter, p_cost bigint, p_now bigint) returns bigint[]
language plpgsql as $$
begin
    for i in 0 .. cardinality(m.parts) / 8 - 1 loop
        if m.parts[i * 8 + 1] <> 2 then
            m.parts := paceline.part_charge(m.id, m.parts, i, p_cost, p_now);
        end if;
    end loop;
    return m.parts;
end $$;

-- How much of a rate has left the window by now.
create function paceline.gone(p_meter bigint, p_parts bigint[], p_part int, p_now bigint) returns bigint
language plpgsql stable as $$
declare
    b int := p_part * 8;
    v_cum bigint;
begin
    select s.cum into v_cum from paceline.spent s where s.meter = p_meter and s.part = p_part
        and s.at > least(p_parts[b + 6], p_parts[b + 7] - 1) and s.at <= p_now - p_parts[b + 3] order by s.at desc limit 1;
    if v_cum is null and p_parts[b + 6] <= p_now - p_parts[b + 3] then return p_parts[b + 5]; end if;
    return v_cum;
end $$;

create function paceline.part_used(m paceline.meter, p_part int, p_now bigint, p_in_flight int) returns bigint
language plpgsql stable as $$
declare
    b int := p_part * 8;
    v_gone bigint;
begin
    if m.parts[b + 1] = 2 then return p_in_flight; end if;
    if m.parts[b + 1] > 2 then
        return case when paceline.part_opens(m.id, m.parts, p_part, 1) > p_now then 1 else 0 end;
    end if;
    v_gone := paceline.gone(m.id, m.parts, p_part, p_now);
    if v_gone is not null then return m.parts[b + 4] - v_gone; end if;
    -- What was folded is not known one by one: as long as it may count, the key shows as full.
    if m.parts[b + 5] > 0 then
        return least(m.parts[b + 4], greatest(m.parts[b + 4] - m.parts[b + 5], m.parts[b + 2]));
    end if;
    return m.parts[b + 4];
end $$;

-- How full a key is, by its fullest part; (in flight, null) when nothing limits it.
create function paceline.used_and_allowed(m paceline.meter, p_now bigint, p_in_flight int, out used bigint, out allowed bigint)
language plpgsql stable as $$
declare
    v_used bigint;
    v_allowed bigint;
begin
    used := p_in_flight;
    for i in 0 .. cardinality(m.parts) / 8 - 1 loop
        continue when m.parts[i * 8 + 1] = 5;
        v_used := paceline.part_used(m, i, p_now, p_in_flight) + case when m.parts[i * 8 + 1] = 1 then m.open else 0 end;
        v_allowed := case when m.parts[i * 8 + 1] > 2 then 1 else m.parts[i * 8 + 2] end;
        if allowed is null or v_used::numeric * allowed > used::numeric * v_allowed then
            used := v_used;
            allowed := v_allowed;
        end if;
    end loop;
end $$;

-- True when a start is refused for its size alone.
create function paceline.lacks_only_room(m paceline.meter, p_cost bigint, p_now bigint) returns boolean
language sql stable as $$
    select p_cost > 1 and paceline.opens_at(m, 1) <= p_now and p_now < paceline.opens_at(m, p_cost)
        and paceline.opens_at(m, p_cost) < paceline.never()
$$;

-- True when only windows refuse: no hold, no gap, no missing slot.
create function paceline.lacks_only_time(m paceline.meter, p_cost bigint, p_now bigint) returns boolean
language sql stable as $$
    select m.in_flight < m.slots and m.hold_until <= p_now and not exists (
        select from generate_series(0, cardinality(m.parts) / 8 - 1) as i
        where m.parts[i * 8 + 1] in (3, 4) and paceline.part_opens(m.id, m.parts, i, p_cost) > p_now)
$$;

create function paceline.longest_rate(p_parts bigint[]) returns bigint language sql immutable as $$
    select coalesce(max(p_parts[i * 8 + 3]), 0)
    from generate_series(0, cardinality(p_parts) / 8 - 1) as i where p_parts[i * 8 + 1] = 1
$$;

create function paceline.last_start(p_parts bigint[], p_part int) returns bigint language sql immutable as $$
    select case when p_parts[p_part * 8 + 1] in (1, 5) then p_parts[p_part * 8 + 7]
        else p_parts[p_part * 8 + 4] + case when p_parts[p_part * 8 + 5] > 0 then 1 else 0 end end
$$;

-- What was charged at the last start.
create function paceline.last_cost(p_meter bigint, p_parts bigint[], p_part int) returns bigint language sql stable as $$
    select case when p_parts[p_part * 8 + 1] not in (1, 5) then p_parts[p_part * 8 + 6]
        else p_parts[p_part * 8 + 4] - greatest(p_parts[p_part * 8 + 5], (select max(s.cum) from paceline.spent s
            where s.meter = p_meter and s.part = p_part and s.cum < p_parts[p_part * 8 + 4])) end
$$;

-- True when a new key would decide the same from now on.
create function paceline.forgettable(m paceline.meter, p_now bigint) returns boolean language plpgsql stable as $$
begin
    if m.in_flight > 0 or m.refusals > 0 or m.hold_until > p_now or m.reserved_by is not null then
        return false;
    end if;
    for i in 0 .. cardinality(m.parts) / 8 - 1 loop
        if m.parts[i * 8 + 1] = 1 and m.parts[i * 8 + 7] >= 0 and m.parts[i * 8 + 7] + m.parts[i * 8 + 3] > p_now then
            return false;
        end if;
        if m.parts[i * 8 + 1] = 5 and m.parts[i * 8 + 7] >= 0 and m.parts[i * 8 + 7]
            + greatest(m.parts[i * 8 + 3], m.parts[i * 8 + 8] * paceline.last_cost(m.id, m.parts, i)) > p_now then
            return false;
        end if;
        if m.parts[i * 8 + 1] in (3, 4) and m.parts[i * 8 + 4] >= 0
            and paceline.part_opens(m.id, m.parts, i, 1) + 1 > p_now then
            return false;
        end if;
    end loop;
    return true;
end $$;

-- How many starts these kinds must know, for how long, and the longest interval between two of them.
create function paceline.reach(p_parts bigint[], out most bigint, out window_ bigint, out spacing bigint)
language sql immutable as $$
    select greatest(1, max(p_parts[i * 8 + 2]) filter (where p_parts[i * 8 + 1] in (1, 5))),
        coalesce(max(p_parts[i * 8 + 3]) filter (where p_parts[i * 8 + 1] in (1, 3, 5)), 0),
        coalesce(max(case p_parts[i * 8 + 1] when 5 then p_parts[i * 8 + 8]
            when 4 then (p_parts[i * 8 + 3] + p_parts[i * 8 + 2] - 1) / p_parts[i * 8 + 2] end), 0)
    from generate_series(0, cardinality(p_parts) / 8 - 1) as i
$$;

-- The log to keep beside these parts for others, which ruled before or rule again when an override ends: none where the
-- parts themselves remember as much.
create function paceline.remember(p_parts bigint[], p_others bigint[], p_may_be_forgotten boolean) returns bigint[]
language plpgsql immutable as $$
declare
    v_what bigint[] := array(select p_parts[i * 8 + 1] from generate_series(0, cardinality(p_parts) / 8 - 1) as i);
    v_logs boolean := 1 = any (v_what);
    v_others record;
    v_own record;
begin
    if not exists (select from generate_series(0, cardinality(p_others) / 8 - 1) as i where p_others[i * 8 + 1] <> 2)
        or (v_logs and not p_may_be_forgotten) then
        return '{}';
    end if;
    select * into v_others from paceline.reach(p_others);
    select * into v_own from paceline.reach(p_parts);
    if (v_logs or (v_others.most <= 1 and (4 = any (v_what) or (3 = any (v_what) and v_others.spacing = 0))))
        and (not p_may_be_forgotten
            or (v_others.window_ <= v_own.window_ and v_others.spacing <= v_own.spacing)) then
        return '{}';
    end if;
    return array[5, v_others.most, v_others.window_, 0, 0, 0, -1, v_others.spacing];
end $$;

-- Those parts that remember a start.
create function paceline.remembering(p_parts bigint[]) returns bigint[] language sql immutable as $$
    select coalesce(array_agg(p_parts[i * 8 + k] order by i, k), '{}')
    from generate_series(0, cardinality(p_parts) / 8 - 1) as i, generate_series(1, 8) as k
    where p_parts[i * 8 + 1] <> 2 and paceline.last_start(p_parts, i) >= 0
$$;

-- Which of the old parts a new one goes on from: of those that remember, the one that remembers the most.
create function paceline.goes_on_from(p_what bigint, p_old bigint[]) returns int language sql immutable as $$
    select i from generate_series(0, cardinality(p_old) / 8 - 1) as i where p_old[i * 8 + 1] <> 2
        and paceline.last_start(p_old, i) >= 0
    order by case when p_what in (1, 5) and p_old[i * 8 + 1] in (1, 5) or p_old[i * 8 + 1] = p_what then 3
            when p_old[i * 8 + 1] in (1, 5) then 2 else 1 end desc,
        case when p_old[i * 8 + 1] in (1, 5) then p_old[i * 8 + 2] else 1 end desc, paceline.last_start(p_old, i) desc, i
    limit 1
$$;

-- What parts say, without what they counted.
create function paceline.rules_of(p_parts bigint[]) returns bigint[] language sql immutable as $$
    select array(select p_parts[i * 8 + k] from generate_series(0, cardinality(p_parts) / 8 - 1) as i,
        unnest('{1,2,3,8}'::int[]) as k order by i, k)
$$;

-- Go on under other numbers without forgetting the starts that still count.
create function paceline.change_meter(p_meter bigint, p_kind jsonb, p_beneath jsonb default null) returns void
language plpgsql as $$
declare
    m paceline.meter;
    v_old bigint[];
    v_new bigint[];
    v_from int;
    v_moved record;
    v_at bigint;
    v_later bigint;
    v_parts int[] := '{}';
    v_ats bigint[] := '{}';
    v_cums bigint[] := '{}';
    b int;
begin
    select * into m from paceline.meter where id = p_meter order by version desc limit 1 for no key update;
    if not found or (m.kind = p_kind and p_beneath is null) then return; end if;
    v_old := m.parts;
    v_new := paceline.new_parts(p_kind);
    v_new := v_new
        || paceline.remember(v_new, paceline.remembering(v_old) || paceline.new_parts(p_beneath), m.grp <> '');
    if m.kind = p_kind and paceline.rules_of(v_new) = paceline.rules_of(v_old) then return; end if;
    for i in 0 .. cardinality(v_new) / 8 - 1 loop
        b := i * 8;
        v_from := paceline.goes_on_from(v_new[b + 1], v_old);
        continue when v_from is null or v_new[b + 1] = 2;
        v_at := paceline.last_start(v_old, v_from);
        if v_new[b + 1] in (3, 4) then
            v_new[b + 4] := v_at;
            v_new[b + 6] := paceline.last_cost(p_meter, v_old, v_from);
        elsif v_old[v_from * 8 + 1] in (1, 5) then
            v_new[b + 4 : b + 7] := v_old[v_from * 8 + 4 : v_from * 8 + 7];
            -- Folding to what the old rule had to know makes the outcome independent of when entries are trimmed.
            for v_moved in select s.at, s.cum from paceline.spent s where s.meter = p_meter and s.part = v_from
                and s.cum <= v_old[v_from * 8 + 4] - v_old[v_from * 8 + 2] order by s.cum desc limit 1
            loop
                v_new[b + 5] := v_moved.cum;
                v_new[b + 6] := v_moved.at;
            end loop;
            -- Under a shorter guard, starts whose handlers may begin later than that count for as long as before.
            v_later := greatest(0, case when v_old[v_from * 8 + 1] = 1 then v_old[v_from * 8 + 8] else 0 end
                - case when v_new[b + 1] = 1 then v_new[b + 8] else 0 end);
            v_new[b + 7] := v_new[b + 7] + v_later;
            if v_new[b + 5] > 0 then v_new[b + 6] := v_new[b + 6] + v_later; end if;
            select v_parts || coalesce(array_agg(i order by s.cum), '{}'),
                v_ats || coalesce(array_agg(s.at + v_later order by s.cum), '{}'),
                v_cums || coalesce(array_agg(s.cum order by s.cum), '{}')
                into v_parts, v_ats, v_cums from paceline.spent s
                where s.meter = p_meter and s.part = v_from and s.cum > v_new[b + 5];
        elsif v_at >= 0 then
            v_new[b + 4] := paceline.last_cost(p_meter, v_old, v_from);
            v_new[b + 7] := v_at;
            v_parts := v_parts || i;
            v_ats := v_ats || v_at;
            v_cums := v_cums || v_new[b + 4];
        end if;
    end loop;
    delete from paceline.spent where meter = p_meter;
    insert into paceline.spent (meter, part, at, cum)
        select p_meter, t.part, t.at, t.cum from unnest(v_parts, v_ats, v_cums) as t (part, at, cum);
    update paceline.meter set version = version + 1, kind = p_kind, parts = v_new, slots = paceline.slots_of(v_new),
        guard = paceline.guard_of(v_new),
        reserved_by = case when kind = p_kind then reserved_by end where id = p_meter and version >= m.version;
end $$;
