-- Rows that every claim changes: read backwards from their latest version, and changed with a higher one. An update
-- names a version that it has read, or the place of the row, so that it never visits older ones either. Rows to change are
-- collected first and named by their places: joined to the table, a plan that was made while it was empty may read it all.

create function paceline.queue_state_of(p_queue int) returns paceline.queue_state language plpgsql stable as $$
declare
    v_queue_state paceline.queue_state;
begin
    select * into v_queue_state from paceline.queue_state where queue = p_queue order by version desc limit 1;
    return v_queue_state;
end $$;

create function paceline.newest_queue_state(p_queue int) returns setof paceline.queue_state language sql stable as $$
    select * from paceline.queue_state where queue = p_queue order by version desc limit 1
$$;

create function paceline.lane_of(p_lane bigint) returns paceline.lane language plpgsql stable as $$
declare
    v_lane paceline.lane;
begin
    select * into v_lane from paceline.lane where id = p_lane order by version desc limit 1;
    return v_lane;
end $$;

create function paceline.meter_at(p_id bigint) returns paceline.meter language plpgsql stable as $$
declare
    m paceline.meter;
begin
    select * into m from paceline.meter where id = p_id order by version desc limit 1;
    return m;
end $$;

-- The lanes of a group. Given by their numbers: joined to the groups once more, a plan may read all of them.
create function paceline.lanes_of(p_lanes bigint[]) returns setof paceline.lane language sql stable as $$
    select l.* from unnest(p_lanes) as u (id)
        cross join lateral (select * from paceline.lane o where o.id = u.id order by o.version desc limit 1) as l
$$;

-- Keys by their numbers, in the order given.
create function paceline.meters(p_ids bigint[]) returns setof paceline.meter language sql stable as $$
    select m.* from unnest(p_ids) with ordinality as t (id, place)
        cross join lateral (select * from paceline.meter o where o.id = t.id order by o.version desc limit 1) as m
        order by t.place
$$;

-- The keys of these limits that are there: shared ones (''), or those of one group.
create function paceline.keys_of(p_lims int[], p_grp text) returns setof paceline.meter language sql stable as $$
    select m.* from unnest(p_lims) with ordinality as t (lim, place)
        cross join lateral (select o.id from paceline.key o where o.lim = t.lim and o.grp = p_grp limit 1) as k
        cross join lateral (select * from paceline.meter o where o.id = k.id order by o.version desc limit 1) as m
        order by t.place
$$;

-- Lock keys: shared ones first, each kind in the order of its numbers.
create function paceline.lock_keys(p_ids bigint[]) returns void language plpgsql as $$
begin
    perform from (select k.id from unnest(p_ids) as t (id)
            cross join lateral (select * from paceline.key o where o.id = t.id limit 1) as k
            group by k.id, k.grp order by k.grp <> '', k.id) as s
        cross join lateral (select from paceline.meter o where o.id = s.id order by o.version desc limit 1
            for no key update) as m;
end $$;

-- Lanes were filed as ready at any turn: the next claim looks from the beginning.
create function paceline.forget_lowest(p_queues int[]) returns void language plpgsql as $$
declare
    v_queue_state paceline.queue_state;
begin
    for i in 1 .. cardinality(p_queues) loop
        v_queue_state := paceline.queue_state_of(p_queues[i]);
        if v_queue_state.low_class <> '{}' then
            update paceline.queue_state set version = version + 1, low_class = '{}', low_turn = '{}', low_filed = '{}'
                where queue = v_queue_state.queue and version >= v_queue_state.version;
        end if;
    end loop;
end $$;

-- A line with a mark for a class: no ready lane of it stands before.
create function paceline.marked(p_queue_state paceline.queue_state, p_class int, p_turn bigint, p_filed bigint) returns paceline.queue_state
language plpgsql immutable as $$
declare
    m int := coalesce(array_position(p_queue_state.low_class, p_class), cardinality(p_queue_state.low_class) + 1);
begin
    p_queue_state.low_class[m] := p_class;
    p_queue_state.low_turn[m] := p_turn;
    p_queue_state.low_filed[m] := p_filed;
    return p_queue_state;
end $$;

-- The same mark, moved back where a lane stands before it.
create function paceline.lowered(s paceline.queue_state, p_class int, p_turn bigint, p_filed bigint)
returns paceline.queue_state language plpgsql immutable as $$
declare
    m int := array_position(s.low_class, p_class);
begin
    if m is not null and (p_turn, p_filed) < (s.low_turn[m], s.low_filed[m]) then
        s.low_turn[m] := p_turn;
        s.low_filed[m] := p_filed;
    end if;
    return s;
end $$;

-- Count what lanes of these classes have more: for what they have less, `p_sign` is -1.
create function paceline.count_lanes(s paceline.queue_state, p_classes int[], p_numbers int[], p_sign int)
returns paceline.queue_state language plpgsql immutable as $$
declare
    v_ids int[] := s.class_ids;
    v_waiting bigint[] := s.class_waiting;
    k int;
begin
    for i in 1 .. cardinality(p_classes) loop
        if v_ids[k] is distinct from p_classes[i] then
            k := coalesce(array_position(v_ids, p_classes[i]), cardinality(v_ids) + 1);
        end if;
        v_ids[k] := p_classes[i];
        v_waiting[k] := coalesce(v_waiting[k], 0) + p_sign * p_numbers[i];
        s.waiting := s.waiting + p_sign * p_numbers[i];
    end loop;
    s.class_ids := v_ids;
    s.class_waiting := v_waiting;
    return s;
end $$;

-- Write what a fold changed of a queue.
create function paceline.save_queue_state(s paceline.queue_state) returns void language sql as $$
    update paceline.queue_state set version = version + 1, filings = s.filings, waiting = s.waiting, groups = s.groups,
        class_ids = s.class_ids, class_waiting = s.class_waiting, low_class = s.low_class, low_turn = s.low_turn, low_filed = s.low_filed, folded = s.folded, folded_by = s.folded_by, folding = s.folding,
        folding_by = s.folding_by, folding_xid = s.folding_xid, folding_id = s.folding_id
        where queue = s.queue and version >= s.version
$$;

create function paceline.newest_lane(p_lane bigint) returns setof paceline.lane language sql stable as $$
    select * from paceline.lane where id = p_lane order by version desc limit 1
$$;

-- File a lane elsewhere.
create function paceline.file_lane(p_lane bigint, p_state int, p_until bigint) returns void language plpgsql as $$
begin
    update paceline.lane set version = version + 1, state = p_state, until = coalesce(p_until, until)
        where id = p_lane and version >= (
            select o.version from paceline.lane o where o.id = p_lane order by o.version desc limit 1);
end $$;

-- Somebody waits for slots of these keys: whoever frees one tells.
create function paceline.await_keys(p_ids bigint[]) returns void language plpgsql as $$
begin
    update paceline.meter set version = version + 1, awaited = true where not awaited and ctid = any (array(
        select n.ctid from unnest(p_ids) as t (id)
        cross join lateral (select o.ctid from paceline.meter o where o.id = t.id order by o.version desc limit 1) as n));
end $$;

-- Where the newest versions of lanes are.
create function paceline.lane_rows(p_ids bigint[]) returns tid[] language sql stable as $$
    select array_agg(n.ctid) from unnest(p_ids) as t (id)
        cross join lateral (select o.ctid from paceline.lane o where o.id = t.id order by o.version desc limit 1) as n
$$;

-- How far the clock has come, and from when on leases may end: dead ones before it are not visited again. The bound
-- may be a little low: it is worth a write only once in a while.
create function paceline.note_claim(p_queue int, p_now bigint, p_opened bigint) returns void language sql as $$
    update paceline.queue_state u set version = u.version + 1, seen_at = greatest(u.seen_at, p_now), lease_from = n.lease_from,
        open_from = greatest(u.open_from, p_opened)
        from (select o.ctid as row, coalesce((select e.until from paceline.lease e
                where e.queue = p_queue and e.until >= o.lease_from order by e.until limit 1), paceline.never()) as lease_from
            from (select s.ctid, s.lease_from from paceline.queue_state s where s.queue = p_queue order by s.version desc limit 1)
                as o) as n
        where u.ctid = n.row and (u.seen_at < p_now or n.lease_from - u.lease_from > 500000)
$$;

-- The latest claim of a worker.
create function paceline.newest_claim(p_space int, p_worker text) returns setof paceline.last_claim language sql stable as $$
    select * from paceline.last_claim where space = p_space and worker = p_worker order by version desc limit 1
$$;

create function paceline.remember_claim(p_space int, p_worker text, p_claim_id text, p_version bigint, p_first bigint,
    p_last bigint) returns void language plpgsql as $$
begin
    if p_version is null then
        insert into paceline.last_claim (space, worker, claim_id, first_fence, last_fence)
            values (p_space, p_worker, p_claim_id, p_first, p_last) on conflict (space, worker, version) do nothing;
    else
        update paceline.last_claim set version = version + 1, claim_id = p_claim_id, first_fence = p_first, last_fence = p_last
            where space = p_space and worker = p_worker and version >= p_version;
    end if;
end $$;

-- Whether something came to a queue since it was folded. Arrivals are gone when they are folded; the last snapshot says
-- where live ones begin.
create function paceline.has_arrivals(n paceline.queue_state) returns boolean language sql stable as $$
    select n.folding is not null or n.folded is null or (pg_snapshot_xmax(pg_current_snapshot()))::text::bigint
            - (pg_snapshot_xmin(n.folded))::text::bigint > 64
        or exists (select from paceline.arrival o where o.queue = n.queue and o.xid >= pg_snapshot_xmin(n.folded))
$$;

-- Lanes that a claim passed over are ready again.
create function paceline.unskip(p_lanes bigint[]) returns void language sql as $$
    update paceline.lane set version = version + 1, state = paceline.ready()
        where ctid = any (paceline.lane_rows(p_lanes)) and state = paceline.parked() and waiting > 0
$$;
