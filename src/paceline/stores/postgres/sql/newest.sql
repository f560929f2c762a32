-- Rows that every claim changes: read backwards from their latest version, and changed with a higher one. An update
-- names a version that it has read, or the place of the row, so that it never visits older ones either. Rows to change are
-- collected first and named by their places: joined to the table, a plan that was made while it was empty may read it all.

create function paceline.line_of(p_queue int) returns paceline.line language plpgsql stable as $$
declare
    v_line paceline.line;
begin
    select * into v_line from paceline.line where queue = p_queue order by version desc limit 1;
    return v_line;
end $$;

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
    v_line paceline.line;
begin
    for i in 1 .. cardinality(p_queues) loop
        v_line := paceline.line_of(p_queues[i]);
        if v_line.low_class <> '{}' then
            update paceline.line set version = version + 1, low_class = '{}', low_turn = '{}', low_filed = '{}'
                where queue = v_line.queue and version >= v_line.version;
        end if;
    end loop;
end $$;

-- A line with a mark for a class: no ready lane of it stands before.
create function paceline.marked(p_line paceline.line, p_class int, p_turn bigint, p_filed bigint) returns paceline.line
language plpgsql immutable as $$
declare
    m int := coalesce(array_position(p_line.low_class, p_class), cardinality(p_line.low_class) + 1);
begin
    p_line.low_class[m] := p_class;
    p_line.low_turn[m] := p_turn;
    p_line.low_filed[m] := p_filed;
    return p_line;
end $$;

-- A lane got other words about when it may start.
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
