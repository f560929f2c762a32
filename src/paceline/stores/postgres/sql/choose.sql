-- Which jobs start now, and in which order: a sort and one pass over counters.
-- Inside one claim turns have a closed form: the k-th start of a group (from 0) stands at its tag, which is the group's
-- turn for k = 0 and greatest(turn, virtual time) + k turns after that, whatever other groups do. So candidates are sorted
-- by (tag, k, turn, filed), and one pass skips those whose keys are used up. A job that is not of cost 1, or any job while
-- room is kept for one, ends the pass and is considered alone.

-- Load what may start: at most so many groups of each queue, with as many jobs of each lane as its turns may need.
create function paceline.load_turns(c paceline.choosing, p_groups int) returns paceline.turns
language plpgsql as $$
declare
    t paceline.turns;
    v_closed int[] := '{}';
begin
    select array_agg(s.id), array_agg(s.place), array_agg(s.virtual_time), array_agg(coalesce(s.low_turn[s.low], 0)),
        array_agg(coalesce(s.low_filed[s.low], 0)), array_agg(1), array_agg(0)
        into t.k_id, t.k_place, t.k_time, t.k_low_turn, t.k_low_filed, t.k_from, t.k_to from (
        select k.id, q.place, n.*, array_position(n.low_class, k.id) as low
        from unnest(c.queues, c.knowns) with ordinality as q (id, known, place)
        cross join lateral (select o.virtual_time, o.low_class, o.low_turn, o.low_filed from paceline.queue_state o
            where o.queue = q.id order by o.version desc limit 1) as n
        join paceline.class k on k.queue = q.id
        where q.place = any (c.active) and not k.paused and (q.known is null or q.known = any (k.known_by))) as s;
    t.m_id := '{}';
    t.singly := false;
    if t.k_id is null then return t; end if;
    if c.limited then
        t := paceline.load_shared_keys(t, c, p_groups);
        v_closed := array(select s.k from unnest(t.k_id, t.k_from, t.k_to) with ordinality as s (id, first, last, k)
            where case when c.reserved then paceline.class_opens(
                    (select o.shared from paceline.class o where o.id = s.id)) > c.now
                else exists (select from unnest(t.k_keys[s.first : s.last]) as u (m) where t.m_free[u.m] <= 0) end);
    end if;
    t := paceline.load_lanes(t, v_closed, p_groups);
    if t.l_id is null then return t; end if;
    if cardinality(t.l_id) > 2 * p_groups and true = any (t.l_several) then t := paceline.narrow_lanes(t, p_groups); end if;
    if c.limited and not c.reserved then t := paceline.load_group_keys(t, c.now, p_groups); end if;
    return paceline.load_candidates(t, c.reserved, p_groups);
end $$;

-- Shared keys of the classes, and those that a limiter of the worker brings along: how many starts each admits.
create function paceline.load_shared_keys(t paceline.turns, c paceline.choosing, p_most int) returns paceline.turns
language plpgsql as $$
begin
    with pair as materialized (
        select u.k, y.id, (count(y.id) over (order by u.k, s.place))::int as n,
            (dense_rank() over (order by y.id))::int as m
        from unnest(t.k_id) with ordinality as u (id, k)
        cross join lateral (select o.shared from paceline.class o where o.id = u.id limit 1) as d
        left join lateral (
            select e.lim, e.place from unnest(d.shared) with ordinality as e (lim, place)
            union all select e.lim, 100000 + e.place from unnest(c.also_lims) with ordinality as e (lim, place)
                where not e.lim = any (d.shared)) as s on true
        left join lateral (select o.id from paceline.key o where o.lim = s.lim and o.grp = '' limit 1) as y on true
    ), key as (
        select m.id, m.ctid as row, m.guard, paceline.admits(m.meter, c.now, p_most) as free
        from (select distinct p.id from pair p where p.id is not null) as p
        cross join lateral (select o.ctid, o.id, o.guard, o as meter from paceline.meter o where o.id = p.id
            order by o.version desc limit 1) as m
    )
    select y.*, p.*, s.* into t.m_id, t.m_row, t.m_free, t.m_guard, t.singly, t.k_keys, t.k_from, t.k_to
        from (select coalesce(array_agg(k.id order by k.id), '{}'), coalesce(array_agg(k.row order by k.id), '{}'),
                array_agg(coalesce(k.free, 1) order by k.id), array_agg(k.guard order by k.id),
                coalesce(bool_or(k.free is null), false) from key k) as y,
            (select array_agg(o.m order by o.n) from pair o where o.id is not null) as p,
            (select array_agg(coalesce(e.first, 1) order by e.k), array_agg(coalesce(e.last, 0) order by e.k)
                from (select o.k, min(o.n) filter (where o.id is not null) as first,
                    max(o.n) filter (where o.id is not null) as last from pair o group by o.k) as e) as s;
    return t;
end $$;

-- The next lanes by turn, of all classes that are open.
create function paceline.load_lanes(t paceline.turns, p_closed int[], p_groups int) returns paceline.turns
language plpgsql as $$
begin
    with found as materialized (
        select e.*, k.k::int as k, k.place, dense_rank() over (partition by k.place order by e.turn, e.filed) as nth
        from unnest(t.k_id, t.k_place, t.k_low_turn, t.k_low_filed) with ordinality as k (id, place, turn, filed, k)
        cross join lateral (select u.ctid as row, u.* from paceline.lane u
            where u.class = k.id and u.state = paceline.ready() and u.waiting > 0 and (u.turn, u.filed) >= (k.turn, k.filed)
            order by u.turn, u.filed limit p_groups + 1) as e
        where not k.k = any (p_closed)
    ), mark as (
        select s.k, min(array[s.turn, s.filed]) as at from found s group by s.k
    )
    select l.*, e.*, m.* into t.l_id, t.l_row, t.l_k, t.l_grp, t.l_name, t.l_turn, t.l_filed, t.l_priority, t.l_head,
        t.l_several, t.l_from, t.l_to, t.edge_place, t.edge_turn, t.edge_filed, t.mark_class, t.mark_turn, t.mark_filed
        from (select array_agg(s.id), array_agg(s.row), array_agg(s.k), array_agg(s.grp), array_agg(g.name),
                array_agg(s.turn), array_agg(s.filed), array_agg(s.head_priority), array_agg(s.head_place),
                array_agg(cardinality(g.lanes) > 1), array_agg(1), array_agg(0)
            from found s cross join lateral (select o.name, o.lanes from paceline.grp o where o.id = s.grp limit 1) as g
            where s.nth <= p_groups) as l,
        (select array_agg(s.place), array_agg(s.turn), array_agg(s.filed)
            from (select distinct o.place, o.turn, o.filed from found o where o.nth = p_groups + 1) as s) as e,
        (select array_agg(t.k_id[s.k]), array_agg(s.at[1]), array_agg(s.at[2]) from mark s) as m;
    return t;
end $$;

-- A group may have a lane in each of very many classes, and its first jobs are in the lanes with the best heads: the others
-- are left out, and the best of them stands for all as an edge.
create function paceline.narrow_lanes(t paceline.turns, p_most int) returns paceline.turns language plpgsql as $$
begin
    select array_agg(s.id), array_agg(s.row), array_agg(s.k), array_agg(s.grp), array_agg(s.name), array_agg(s.turn),
        array_agg(s.filed), array_agg(s.priority), array_agg(s.head), array_agg(s.several), array_agg(1), array_agg(0),
        array_agg(s.rank > p_most)
        into t.l_id, t.l_row, t.l_k, t.l_grp, t.l_name, t.l_turn, t.l_filed, t.l_priority, t.l_head, t.l_several, t.l_from,
        t.l_to, t.l_edge from (
        select l.*, row_number() over (partition by l.grp order by w.priority, w.place) as rank
        from unnest(t.l_id, t.l_row, t.l_k, t.l_grp, t.l_name, t.l_turn, t.l_filed, t.l_priority, t.l_head, t.l_several)
            as l (id, row, k, grp, name, turn, filed, priority, head, several)
        cross join lateral (select o.priority, o.place from paceline.wait o where o.lane = l.id
            and (o.priority, o.place) >= (l.priority, l.head) order by o.priority, o.place limit 1) as w) as s
        where s.rank <= p_most + 1;
    return t;
end $$;

-- Keys of the groups of lanes, locked in their order: how many starts each admits.
create function paceline.load_group_keys(t paceline.turns, p_now bigint, p_most int) returns paceline.turns
language plpgsql as $$
declare
    v_locked record;
    v_free record;
    v_shared int := cardinality(t.m_id);
    l int;
begin
    select * into v_locked
        from paceline.lock_group_keys(t.l_name, array(select t.k_id[u.k] from unnest(t.l_k) as u (k)));
    if v_locked.meters is null then return t; end if;
    -- What was spent is read by another statement than the one that waited for the locks.
    select array_agg(m.id) as ids, array_agg(m.guard) as guards, array_agg(paceline.admits(m, p_now, p_most)) as numbers
        into v_free from unnest(v_locked.meters) as m;
    t.singly := t.singly or array_position(v_free.numbers, null) is not null;
    if t.singly then v_free.numbers := array(select coalesce(u.number, 1) from unnest(v_free.numbers) as u (number)); end if;
    t.l_free := array_fill(null::bigint, array[cardinality(t.l_id)]);
    t.l_keys := v_locked.keys;
    for i in 1 .. cardinality(v_locked.lanes) loop
        l := v_locked.lanes[i];
        if t.l_to[l] = 0 then t.l_from[l] := i; end if;
        t.l_to[l] := i;
        t.l_free[l] := least(t.l_free[l], v_free.numbers[v_locked.keys[i]]);
        t.l_keys[i] := v_shared + v_locked.keys[i];
    end loop;
    t.m_id := t.m_id || v_free.ids;
    t.m_row := t.m_row || v_locked.rows;
    t.m_free := t.m_free || v_free.numbers;
    t.m_guard := t.m_guard || v_free.guards;
    return t;
end $$;

-- The keys of the groups of lanes, made where they are missing and locked in their order; `keys` says which one lane i of
-- `lanes` has.
create function paceline.lock_group_keys(p_names text[], p_classes int[], out lanes int[], out keys int[],
    out meters paceline.meter[], out rows tid[]) language plpgsql as $$
declare
    v_lims int[];
    v_names text[];
    v_ids bigint[];
begin
    loop
        select array_agg(p.l order by p.l, p.place), array_agg(p.m order by p.l, p.place), array_agg(p.id),
            array_agg(p.lim) filter (where p.id is null), array_agg(p.name) filter (where p.id is null)
            into lanes, keys, v_ids, v_lims, v_names from (
            select t.l::int as l, u.place, u.lim, t.name, y.id, (dense_rank() over (order by y.id))::int as m
            from unnest(p_names, p_classes) with ordinality as t (name, class, l)
            cross join lateral (select o.grouped from paceline.class o where o.id = t.class limit 1) as d
            cross join lateral unnest(d.grouped) with ordinality as u (lim, place)
            left join lateral (select o.id from paceline.key o where o.lim = u.lim and o.grp = t.name limit 1)
                as y on true
            where t.name <> '') as p;
        exit when v_lims is null;
        -- Another claim that makes one of them is waited for.
        with made as (
            insert into paceline.key (lim, grp) select distinct t.lim, t.name from unnest(v_lims, v_names) as t (lim, name)
                order by 1, 2 on conflict (lim, grp) do nothing returning id, lim, grp
        )
        insert into paceline.meter (id, lim, grp, kind, parts, slots, guard, hold_until, hold_reason)
            select m.id, m.lim, m.grp, k.kind, n.parts, paceline.slots_of(n.parts), paceline.guard_of(n.parts),
                l.held_until, l.held_reason from made m
            cross join lateral (select * from paceline.lim o where o.id = m.lim limit 1) as l
            cross join lateral (select paceline.kind_of(l, m.grp) as kind offset 0) as k
            cross join lateral (select paceline.fresh_parts(l, m.grp, k.kind) as parts offset 0) as n;
    end loop;
    select array_agg(m.meter), array_agg(m.row) into meters, rows
        from (select distinct t.id from unnest(v_ids) as t (id) order by 1) as s
        cross join lateral (select o.ctid as row, o as meter from paceline.meter o where o.id = s.id
            order by o.version desc limit 1 for no key update) as m;
end $$;

-- Jobs of the lanes in the order of their tags. Of a lane only as many as its keys admit: no more of it can start now.
create function paceline.load_candidates(t paceline.turns, p_reserved boolean, p_groups int) returns paceline.turns
language plpgsql as $$
declare
    v_each int := p_groups / cardinality(t.l_id) + 1;
    v_caps bigint[]; -- of classes
    v_many boolean := t.k_place[1] <> any (t.k_place); -- queues
begin
    if t.m_id <> '{}' and not p_reserved then
        v_caps := array(select (select min(t.m_free[u.m]) from unnest(t.k_keys[k.first : k.last]) as u (m))
            from unnest(t.k_from, t.k_to) with ordinality as k (first, last, k) order by k.k);
    end if;
    with job as (
        select l.l::int as l, l.grp, t.k_place[l.k] as queue, t.k_time[l.k] as time, l.turn, l.filed, w.priority, w.place,
            w.row, w.again, case when l.edge or w.nth > v_each then paceline.edge() when l.free <= 0 then paceline.closed_lane()
                when w.big or p_reserved then paceline.big_job() else paceline.plain_job() end as kind
        from unnest(t.l_id, t.l_k, t.l_grp, t.l_turn, t.l_filed, t.l_priority, t.l_head, t.l_free, t.l_edge)
            with ordinality as l (id, k, grp, turn, filed, priority, head, free, edge, l)
        cross join lateral (
            select u.ctid as row, u.priority, u.place, u.again, u.big, row_number() over () as nth from (
                select o.ctid, o.* from paceline.wait o
                where o.lane = l.id and (o.priority, o.place) >= (l.priority, l.head) order by o.priority, o.place
                limit case when l.edge then 1 else greatest(least(v_each + 1, l.free, v_caps[l.k]), 1) end) as u) as w
    ), placed as (
        select j.*, coalesce(sum((j.kind <> paceline.closed_lane())::int) over (partition by j.grp
            order by j.priority, j.place rows between unbounded preceding and 1 preceding), 0) as k from job j
        union all
        select null, null, e.place, 0, e.turn, e.filed, null, null, null, null, paceline.edge(), 0
            from unnest(t.edge_place, t.edge_turn, t.edge_filed) as e (place, turn, filed)
    ), sorted as materialized (
        select p.*, case when p.k = 0 then p.turn else greatest(p.turn, p.time) + p.k * paceline.one() end as tag from placed p
        order by p.queue, tag, p.k, p.turn, p.filed, p.priority, p.place
    )
    select a.*, q.* into t.a_lane, t.a_kind, t.a_tag, t.a_priority, t.a_place, t.a_row, t.a_again, t.q_place, t.q_number
        from (select array_agg(s.l), array_agg(s.kind), array_agg(s.tag), array_agg(s.priority), array_agg(s.place),
                array_agg(s.row), array_agg(s.again) from sorted s) as a,
            (select array_agg(o.queue order by o.queue), array_agg(o.number order by o.queue)
                from (select s.queue, count(*)::int as number from sorted s where v_many group by s.queue) as o) as q;
    return t;
end $$;

-- One pass: candidates in their order, queue by queue in turn, until there are enough, something was not loaded (`more`),
-- or one has to be considered alone. `closed`: lanes whose turn came while their groups may start nothing.
create function paceline.choose(inout c paceline.choosing, t paceline.turns, p_left int, out picks int[], out closed int[],
    out more boolean, out alone int) language plpgsql as $$
declare
    v_active int[] := c.active;
    v_at int[]; -- the next candidate of each queue
    v_end int[];
    v_free bigint[] := t.m_free;
    v_full boolean;
    q int;
    i int;
    l int;
    k int;
begin
    closed := '{}';
    more := false;
    i := least(p_left, cardinality(t.a_kind));
    if cardinality(v_active) = 1 and c.room is null and t.a_kind[1 : i] = array_fill(paceline.plain_job(), array[i])
        and not exists (select from unnest(v_free) as u (free) where u.free < i)
    then
        -- Nothing is in the way of the first ones.
        picks := array(select generate_series(1, i));
        c.last := v_active[1];
        return;
    end if;
    picks := '{}';
    if t.q_place is null then
        v_at[t.k_place[1]] := 1;
        v_end[t.k_place[1]] := cardinality(t.a_kind) + 1;
    end if;
    i := 1;
    for x in 1 .. coalesce(cardinality(t.q_place), 0) loop
        v_at[t.q_place[x]] := i;
        i := i + t.q_number[x];
        v_end[t.q_place[x]] := i;
    end loop;
    <<pass>>
    while cardinality(picks) < p_left and v_active <> '{}' loop
        q := coalesce((select min(u.place) from unnest(v_active) as u (place) where u.place > c.last), v_active[1]);
        loop
            if c.budget <= 0 then
                c.active := '{}';
                exit pass;
            end if;
            i := v_at[q];
            if i is null or i = v_end[q] then
                v_active := array_remove(v_active, q);
                exit;
            end if;
            v_at[q] := i + 1;
            l := t.a_lane[i];
            more := l is null;
            exit pass when more;
            k := t.l_k[l];
            v_full := false;
            for x in t.k_from[k] .. t.k_to[k] loop v_full := v_full or v_free[t.k_keys[x]] <= 0; end loop;
            if t.a_kind[i] = paceline.closed_lane() then
                -- One whose key was used up in this pass is filed with the others of that key.
                for x in t.l_from[l] .. t.l_to[l] loop
                    v_full := v_full or v_free[t.l_keys[x]] <= 0 and t.m_free[t.l_keys[x]] > 0;
                end loop;
                continue when v_full;
                c.budget := c.budget - 1;
                closed := closed || l;
                continue;
            end if;
            for x in t.l_from[l] .. t.l_to[l] loop v_full := v_full or v_free[t.l_keys[x]] <= 0; end loop;
            if v_full then
                -- Without it, later jobs of its group come at earlier tags.
                more := t.l_several[l];
                exit pass when more;
                continue;
            end if;
            more := t.a_kind[i] = paceline.edge();
            exit pass when more;
            if t.a_kind[i] = paceline.big_job() then
                alone := i;
                exit pass;
            end if;
            if c.room < 1 then
                c.needs_room := 1;
                c.active := '{}';
                exit pass;
            end if;
            for x in t.k_from[k] .. t.k_to[k] loop v_free[t.k_keys[x]] := v_free[t.k_keys[x]] - 1; end loop;
            for x in t.l_from[l] .. t.l_to[l] loop v_free[t.l_keys[x]] := v_free[t.l_keys[x]] - 1; end loop;
            picks := picks || i;
            c.last := q;
            c.room := c.room - 1;
            exit;
        end loop;
    end loop;
end $$;

-- Start jobs by turn, until the slots are full or nobody may start.
create function paceline.take_turns(inout c paceline.choosing) language plpgsql as $$
declare
    t paceline.turns;
    v record;
    v_left int;
    v_wide int := 1; -- so many times more is loaded when a pass came to nothing
    v_untils bigint[];
begin
    loop
        v_left := c.slots - cardinality(c.started);
        if c.reserved then v_left := least(v_left, 1); end if;
        exit when v_left <= 0 or c.active = '{}' or c.budget <= 0;
        exit when c.reserved and c.also <> '{}'
            and paceline.max_opens(c.also, array_fill(1::bigint, array[cardinality(c.also)])) > c.now;
        t := paceline.load_turns(c, v_left * v_wide);
        exit when t.a_lane is null;
        select * into v from paceline.choose(c, t, case when t.singly then 1 else v_left end);
        c := v.c;
        -- Closed lanes are filed by what had started when their turn came.
        v_untils := array(select paceline.group_opens(t.l_id[u.l]) from unnest(v.closed) as u (l));
        if v.picks <> '{}' then c := paceline.start_jobs(c, t, v.picks, null, null, null); end if;
        perform paceline.file_until(t.l_id[u.l], u.until) from unnest(v.closed, v_untils) as u (l, until)
            where u.until > c.now;
        if v.picks = '{}' and v.alone is not null then
            c := paceline.take_alone(c, t, v.alone);
        else
            exit when v.alone is null and not v.more and not t.singly or v.picks = '{}' and not v.more;
        end if;
        v_wide := case when v.picks = '{}' and v.alone is null then least(v_wide * 4, 1000000) else 1 end;
    end loop;
end $$;

-- A job that is not of cost 1, or any while room is kept for one: it starts, or is filed where it belongs.
create function paceline.take_alone(inout c paceline.choosing, t paceline.turns, p_candidate int) language plpgsql as $$
declare
    l int := t.a_lane[p_candidate];
    h paceline.head;
    v_job paceline.job;
    v record;
begin
    select t.l_id[l], k.queue, k.id, t.l_grp[l], t.l_name[l], k.shared, k.grouped, t.a_priority[p_candidate],
        t.a_place[p_candidate], t.a_again[p_candidate] into h from paceline.class k where k.id = t.k_id[t.l_k[l]];
    select * into v_job from paceline.job j where j.seq = abs(h.place);
    select * into v from paceline.consider(c, h, v_job);
    c := v.c;
    if v.verdict = 1 then
        c := paceline.start_jobs(c, t, array[p_candidate], v_job, v.meters, v.taken);
        c.last := t.k_place[t.l_k[l]];
    elsif v.verdict = 0 then
        c.active := case when c.needs_room > 0 then '{}' else array_remove(c.active, t.k_place[t.l_k[l]]) end;
    end if;
end $$;
