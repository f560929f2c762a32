-- Turns by the batch: the same choice as `take_one`, for jobs of cost 1 where nothing is reserved and the worker asks
-- for nothing special. Lanes, heads and keys are loaded once, the choice goes over plain arrays, and every row is
-- written once. Whatever is unusual ends the batch; `take_one` goes on from there.

-- How many starts of cost 1 a key admits at this instant; null when only counting one by one can tell.
create function paceline.admits(m paceline.meter, p_now bigint) returns bigint language plpgsql stable as $$
declare
    v_free bigint;
    b int;
begin
    if m.hold_until > p_now or m.in_flight >= m.slots then return 0; end if;
    v_free := m.slots - m.in_flight;
    for i in 0 .. cardinality(m.parts) / 8 - 1 loop
        b := i * 8;
        if m.parts[b + 1] = 1 then
            if m.parts[b + 7] <= p_now - m.parts[b + 3] then
                v_free := least(v_free, m.parts[b + 2] - m.open);
            else
                v_free := least(v_free, m.parts[b + 2] - m.open - m.parts[b + 4]
                    + coalesce(paceline.gone(m.id, m.parts, i, p_now), 0));
            end if;
        elsif m.parts[b + 1] in (3, 4) then
            if m.parts[b + 1] = 4 and m.parts[b + 3] < m.parts[b + 2] then return null; end if;
            v_free := least(v_free, case when paceline.part_opens(m.id, m.parts, i, 1) <= p_now then 1 else 0 end);
        end if;
    end loop;
    return greatest(v_free, 0);
end $$;

-- The state of parts after so many starts of cost 1 at one instant; what rates have spent is written beside.
create function paceline.charged(p_parts bigint[], p_number bigint, p_now bigint) returns bigint[]
language plpgsql immutable as $$
declare
    b int;
begin
    for i in 0 .. cardinality(p_parts) / 8 - 1 loop
        b := i * 8;
        if p_parts[b + 1] in (1, 5) then
            p_parts[b + 4] := p_parts[b + 4] + p_number;
            p_parts[b + 7] := greatest(p_now, p_parts[b + 7]);
        elsif p_parts[b + 1] in (3, 4) then
            p_parts := paceline.part_charge(0, p_parts, i, 1, p_now);
        end if;
    end loop;
    return p_parts;
end $$;

create function paceline.charge_many(p_meters bigint[], p_numbers bigint[], p_now bigint) returns void
language plpgsql as $$
begin
    insert into paceline.spent as s (meter, part, at, cum)
        select m.id, i, greatest(p_now, m.parts[i * 8 + 7]), m.parts[i * 8 + 4] + t.number
        from unnest(p_meters, p_numbers) as t (id, number)
        cross join lateral (select * from paceline.meter o where o.id = t.id order by o.version desc limit 1) as m
        cross join lateral generate_series(0, cardinality(m.parts) / 8 - 1) as i where m.parts[i * 8 + 1] in (1, 5)
        on conflict (meter, part, at) do update set cum = excluded.cum;
    update paceline.meter m set version = m.version + 1, parts = paceline.charged(m.parts, n.number, p_now),
        in_flight = m.in_flight + n.number, seen_at = p_now
        from (select o.ctid, t.number from unnest(p_meters, p_numbers) as t (id, number)
            cross join lateral (select u.ctid from paceline.meter u where u.id = t.id order by u.version desc limit 1) as o)
            as n where m.ctid = n.ctid;
end $$;

-- Fold old entries of shared rates: a few with every claim keep pace with what is added.
create function paceline.trim_shared(p_meters bigint[], p_now bigint) returns void language plpgsql as $$
declare
    m paceline.meter;
    v_parts bigint[];
begin
    for m in select * from paceline.meters(p_meters) as k where k.grp = '' loop
        v_parts := m.parts;
        for i in 0 .. cardinality(v_parts) / 8 - 1 loop
            if v_parts[i * 8 + 1] in (1, 5) then v_parts := paceline.trim_spent(m.id, v_parts, i, p_now, 2); end if;
        end loop;
        if v_parts <> m.parts then
            update paceline.meter set version = version + 1, parts = v_parts where id = m.id and version >= m.version;
        end if;
    end loop;
end $$;

-- One job came to a queue in which nothing waits and nothing is limited: it is taken in and started at once, in two
-- statements instead of eight. Where it is anything else, nothing is done.
create function paceline.take_first(inout c paceline.choosing, p_queue int, p_known int) language plpgsql as $$
declare
    a record;
begin
    select o.ctid as row, o.priority, o.place, w.ctid as wait, l.ctid as lane, n.ctid as line,
        greatest(l.turn, n.virtual_time + 65536) as turn, n.filings + 1 as filed, k.class,
        coalesce(array_position(n.low_class, k.class), cardinality(n.low_class) + 1) as low, count(*) over () as arrivals,
        o.what = 0 and o.number = 1 and n.waiting = 0 and n.folding is null and l.waiting = 0 and not g.paused
            and cardinality(g.lanes) = 1 and g.lanes[1] = o.lane and g.classes[1] = k.class and not w.again and not w.big
            and not d.paused and (p_known is null or p_known = any (d.known_by)) as usual
        into a from (select t.ctid, t.* from paceline.line t where t.queue = p_queue order by t.version desc limit 1) as n
        cross join lateral (select t.ctid, t.* from paceline.arrival t where t.queue = p_queue
            and t.xid >= pg_snapshot_xmin(n.folded) order by t.xid, t.id limit 2) as o
        left join lateral (select t.class from paceline.task t where t.queue = p_queue and t.name = o.task limit 1)
            as k on true
        left join lateral (select * from paceline.class t where t.id = k.class limit 1) as d on true
        left join lateral (select * from paceline.grp t where t.queue = p_queue and t.name = coalesce(o.grp, '') limit 1)
            as g on true
        left join lateral (select t.ctid, t.* from paceline.lane t where t.id = o.lane order by t.version desc limit 1)
            as l on true
        left join lateral (select t.ctid, t.* from paceline.wait t where t.lane = o.lane and t.priority = o.priority
            and t.place = o.place limit 1) as w on true limit 1;
    if a.arrivals is distinct from 1 or a.usual is not true then return; end if;
    with gone as (
        delete from paceline.arrival where ctid = a.row
    ), taken as (
        delete from paceline.wait where ctid = a.wait
    ), filed as (
        update paceline.lane u set version = u.version + 1, state = 1, turn = a.turn + 65536, filed = a.filed + 1,
            head_priority = a.priority, head_place = a.place where u.ctid = a.lane
    ), moved as (
        update paceline.line u set version = u.version + 1, virtual_time = a.turn, filings = a.filed + 1,
            seen_at = greatest(u.seen_at, c.now), lease_from = least(u.lease_from, c.now + c.lease),
            open_from = greatest(u.open_from, c.now), low_class[a.low] = a.class, low_turn[a.low] = a.turn,
            low_filed[a.low] = a.filed where u.ctid = a.line
    ), begun as (
        insert into paceline.lease (seq, space, queue, worker, fence, until, started_at, attempts_made, crashes, returns)
            values (abs(a.place), c.space, p_queue, c.worker, nextval('paceline.fence'), c.now + c.lease, c.now, 1, 0, 0)
            returning seq, fence
    )
    select c.started || b.seq, c.fences || b.fence, '{}' into c.started, c.fences, c.active from begun b;
end $$;

-- One lane of a queue has nobody to take turns with: as many of its jobs as there are slots and its class admits. Where
-- there are more lanes, or something unusual, nothing is done and the queue stays active.
create function paceline.take_lane(inout c paceline.choosing, p_queue int, p_known int, p_slots int) language plpgsql as $$
declare
    v_lane record;
    v_jobs record;
    v_number bigint := p_slots - cardinality(c.started);
    v_meters bigint[];
    v_free bigint[];
    v_guard bigint;
    v_seqs bigint[];
    v_fences bigint[];
    v_low int;
    v_turn bigint;
begin
    if v_number <= 0 then return; end if;
    select s.*, count(*) over () as lanes into v_lane from (
        select e.id, e.row, e.turn, e.filed, e.waiting, e.head_priority, e.head_place, k.id as class, k.shared,
            k.grouped <> '{}' or e.several as unusual, n.row as line, n.virtual_time, n.filings, n.low_class
        from (select o.ctid as row, o.* from paceline.line o where o.queue = p_queue order by o.version desc limit 1) as n
        cross join lateral (select o.*, array_position(n.low_class, o.id) as low from paceline.class o
            where o.queue = p_queue and not o.paused and (p_known is null or p_known = any (o.known_by)) offset 0) as k
        cross join lateral (select u.ctid as row, u.*, (select cardinality(g.lanes) > 1 from paceline.grp g
                where g.id = u.grp) as several from paceline.lane u
            where u.class = k.id and u.state = 1 and u.waiting > 0
                and (u.turn, u.filed) >= (coalesce(n.low_turn[k.low], 0), coalesce(n.low_filed[k.low], 0))
            order by u.turn, u.filed limit 2) as e limit 2) as s limit 1;
    if v_lane.id is null then
        c.active := '{}';
        return;
    end if;
    if v_lane.lanes > 1 or v_lane.unusual then return; end if;
    if v_lane.shared <> '{}' then
        select array_agg(m.id), array_agg(paceline.admits(m, c.now)), min(m.guard) into v_meters, v_free, v_guard
            from paceline.keys_of(v_lane.shared, '') as m;
        if array_position(v_free, null) is not null then return; end if;
        v_number := least(v_number, (select min(f) from unnest(v_free) as f));
        if v_number <= 0 then
            c.active := '{}';
            return;
        end if;
    end if;
    select array_agg(w.priority) as priorities, array_agg(w.place) as places, array_agg(w.ctid) as rows,
        bool_or(w.again or w.big) as unusual, count(*) as number into v_jobs
        from (select u.ctid, u.* from paceline.wait u
            where u.lane = v_lane.id and (u.priority, u.place) >= (v_lane.head_priority, v_lane.head_place)
            order by u.priority, u.place limit v_number) as w;
    if v_jobs.unusual or v_jobs.number < least(v_number, v_lane.waiting) then return; end if;
    v_number := v_jobs.number;
    delete from paceline.wait where ctid = any (v_jobs.rows);
    with begun as (
        insert into paceline.lease (seq, space, queue, worker, fence, until, started_at, attempts_made, crashes, returns,
                meters, guard)
            select abs(t.place), c.space, p_queue, c.worker, nextval('paceline.fence'), c.now + c.lease, c.now, 1, 0, 0,
                v_meters, nullif(v_guard, 4611686018427387904) from unnest(v_jobs.places) as t (place)
                returning seq, fence
    )
    select array_agg(b.seq), array_agg(b.fence) into v_seqs, v_fences from begun b;
    -- Every start moves the queue's time to the lane's turn, and the lane one turn on.
    v_turn := greatest(v_lane.virtual_time, v_lane.turn) + 65536 * (v_number - 1);
    update paceline.lane u set version = u.version + 1, turn = v_turn + 65536, filed = v_lane.filings + v_number,
        waiting = u.waiting - v_number, head_priority = v_jobs.priorities[v_number], head_place = v_jobs.places[v_number]
        where u.ctid = v_lane.row;
    v_low := coalesce(array_position(v_lane.low_class, v_lane.class), cardinality(v_lane.low_class) + 1);
    update paceline.line u set version = u.version + 1, virtual_time = v_turn, filings = v_lane.filings + v_number,
        waiting = u.waiting - v_number, seen_at = greatest(u.seen_at, c.now), lease_from = least(u.lease_from, c.now + c.lease),
        open_from = greatest(u.open_from, c.opened), low_class[v_low] = v_lane.class, low_turn[v_low] = v_lane.turn,
        low_filed[v_low] = v_lane.filed where u.ctid = v_lane.line;
    if v_meters is not null then
        perform paceline.charge_many(v_meters, array_fill(v_number, array[cardinality(v_meters)]), c.now);
        perform paceline.trim_shared(v_meters, c.now);
    end if;
    c.started := c.started || v_seqs;
    c.fences := c.fences || v_fences;
    c.active := '{}';
end $$;

-- Starts jobs until the slots are full, nobody may start, or something unusual comes: then `unusual` is true.
create function paceline.take_turns(inout c paceline.choosing, p_queues int[], p_knowns int[], p_slots int,
    out unusual boolean) language plpgsql as $$
declare
    v_left int;
    v_rounds int := 0;
    v_more boolean; -- what was loaded is used up, and there is more
    v_most int; -- lanes that are loaded: the first ones, by turn and head
    -- the first lane that is not loaded, and the next group behind its own
    v_edge_grp bigint; v_edge_turn bigint; v_edge_filed bigint; v_edge_priority bigint; v_edge_place bigint; v_edge_g int;
    v_behind_turn bigint; v_behind_filed bigint;
    v_vt bigint[];
    v_filings bigint[];
    -- classes
    nk int; v_loaded int[]; k_low_turn bigint[]; k_low_filed bigint[]; v_open_turn bigint[]; v_open_filed bigint[];
    v_mark int[]; v_mark_turn bigint[]; v_mark_filed bigint[]; k_id int[]; k_place int[]; k_grouped boolean[]; k_head int[]; k_tail int[]; k_last int[]; k_from int[];
    k_to int[]; v_pair_k int[]; v_pair_lim int[]; km int[]; v_open int[]; v_open_k int[];
    -- keys
    m_id bigint[]; m_free bigint[]; m_taken bigint[]; m_guard bigint[]; v_guards bigint[];
    -- lanes
    nl int; l_id bigint[]; l_k int[]; l_grp bigint[]; l_name text[]; l_turn bigint[]; l_filed bigint[]; l_waiting int[];
    l_priority bigint[]; l_place bigint[]; l_g int[]; l_n int[]; l_next int[]; l_sibling int[]; l_same int[]; l_state int[]; l_from int[];
    l_row tid[]; l_several boolean[]; w_row tid[]; w_turn bigint[]; w_filed bigint[]; w_started int[];
    w_priority bigint[]; w_place bigint[]; l_to int[]; lm int[]; l_job int[]; l_last_job int[]; l_started int[]; l_edge_turn bigint[]; l_edge_filed bigint[];
    -- groups
    ng int; g_id bigint[]; g_turn bigint[]; g_filed bigint[]; g_first int[]; g_started int[]; n_first int[];
    -- heads
    j_lane int[]; j_priority bigint[]; j_place bigint[]; j_again boolean[]; j_big boolean[]; j_row tid[]; v_each int;
    -- what was decided
    n int; s_job int[]; f_name text[]; f_meter bigint[];
    i int; k int; l int; o int; p int; q int; g int; x int; v_best int; v_closed boolean; v_turn bigint; v_ids bigint[];
begin
    unusual := false;
    <<rounds>>
    loop
        v_left := p_slots - cardinality(c.started);
        exit when v_left <= 0 or c.active = '{}';
        v_rounds := v_rounds + 1;
        v_more := false;
        select array_agg(s.virtual_time order by t.place), array_agg(s.filings order by t.place) into v_vt, v_filings
            from unnest(p_queues) with ordinality as t (id, place)
            cross join lateral (select * from paceline.line o where o.queue = t.id order by o.version desc limit 1) as s;
        select array_agg(s.id), array_agg(s.place), array_agg(s.grouped <> '{}'),
            array_agg(coalesce(s.low_turn[s.low], 0)), array_agg(coalesce(s.low_filed[s.low], 0))
            into k_id, k_place, k_grouped, k_low_turn, k_low_filed from (
            select k.id, t.place, k.grouped, n.low_turn, n.low_filed, array_position(n.low_class, k.id) as low
            from unnest(p_queues, p_knowns) with ordinality as t (id, known, place)
            cross join lateral (select * from paceline.line o where o.queue = t.id order by o.version desc limit 1) as n
            join paceline.class k on k.queue = t.id where t.place = any (c.active) and not k.paused
                and (t.known is null or t.known = any (k.known_by)) order by k.id) as s;
        nk := coalesce(cardinality(k_id), 0);
        exit when nk = 0;
        -- Shared keys: how many starts each admits now.
        select array_agg(s.k), array_agg(s.lim), array_agg(s.m) into v_pair_k, v_pair_lim, km
            from (select t.k, u.lim, dense_rank() over (order by u.lim) as m
            from unnest(k_id) with ordinality as t (id, k) join paceline.class d on d.id = t.id,
            unnest(d.shared) as u (lim) order by t.k) as s;
        m_id := '{}'; m_free := '{}'; m_taken := '{}'; m_guard := '{}';
        if v_pair_k is not null then
            select array_agg(m.id order by m.lim), array_agg(paceline.admits(m, c.now) order by m.lim), array_agg(0),
                array_agg(m.guard order by m.lim) into m_id, m_free, m_taken, m_guard
                from paceline.keys_of(array(select distinct unnest(v_pair_lim)), '') as m;
            if array_position(m_free, null) is not null then
                unusual := true;
                exit;
            end if;
        end if;
        k_from := array_fill(1, array[nk]); k_to := array_fill(0, array[nk]);
        for x in 1 .. coalesce(cardinality(v_pair_k), 0) loop
            k := v_pair_k[x];
            if k_to[k] = 0 then k_from[k] := x; end if;
            k_to[k] := x;
        end loop;
        v_open := '{}'; v_open_k := '{}'; v_open_turn := '{}'; v_open_filed := '{}';
        for k in 1 .. nk loop
            v_closed := false;
            for x in k_from[k] .. k_to[k] loop v_closed := v_closed or m_free[km[x]] <= 0; end loop;
            if not v_closed then
                v_open := v_open || k_id[k]; v_open_k := v_open_k || k;
                v_open_turn := v_open_turn || k_low_turn[k]; v_open_filed := v_open_filed || k_low_filed[k];
            end if;
        end loop;
        -- The next lanes of each open class by turn; of many classes those that may come to their turn in this claim. Turns
        -- of two queues say nothing about each other: then all are loaded.
        v_most := case when cardinality(p_queues) = 1 and cardinality(v_open) > 16 then
            least((8 * v_left + 64) * 4 ^ least(v_rounds - 1, 8), 1000000000) end;
        with found as materialized (
            select e.*, t.k, coalesce(h.priority, e.head_priority) as priority, coalesce(h.place, e.head_place) as place,
                row_number() over (order by e.turn, e.filed, coalesce(h.priority, e.head_priority),
                    coalesce(h.place, e.head_place)) as rank,
                row_number() over (partition by t.k order by e.turn, e.filed) as nth
                from unnest(v_open, v_open_k, v_open_turn, v_open_filed) as t (id, k, low_turn, low_filed)
                cross join lateral (select u.*, u.ctid as row from paceline.lane u
                    where u.class = t.id and u.state = 1 and u.waiting > 0
                    and (u.turn, u.filed) >= (t.low_turn, t.low_filed)
                    order by u.turn, u.filed limit v_left + (v_rounds - 1) * 16) as e
                -- What a lane says of its head is a bound: of many lanes the heads themselves say which ones come first.
                left join lateral (select w.priority, w.place from paceline.wait w where v_most is not null
                    and w.lane = e.id and (w.priority, w.place) >= (e.head_priority, e.head_place)
                    order by w.priority, w.place limit 1) as h on true
        ), loaded as (
            select array_agg(s.id) as id, array_agg(s.k) as k, array_agg(s.grp) as grp, array_agg(s.name) as name,
                array_agg(s.turn) as turn, array_agg(s.filed) as filed, array_agg(s.waiting) as waiting,
                array_agg(s.head_priority) as priority, array_agg(s.head_place) as place, array_agg(s.g) as g,
                array_agg(s.n) as n, array_agg(s.row) as row, array_agg(s.several) as several
                from (select e.*, r.name, cardinality(r.lanes) > 1 as several, dense_rank() over (order by e.grp) as g,
                        dense_rank() over (order by r.name) as n from found e
                    cross join lateral (select * from paceline.grp o where o.id = e.grp limit 1) as r
                    where v_most is null or e.rank <= v_most order by e.k, e.turn, e.filed) as s
        ), marks as (
            select array_agg(e.k) as k, array_agg(e.turn) as turn, array_agg(e.filed) as filed from found e where e.nth = 1
        ), edge as (
            select e.grp, e.turn, e.filed, e.priority, e.place from found e where e.rank = v_most + 1
        )
        select l.id, l.k, l.grp, l.name, l.turn, l.filed, l.waiting, l.priority, l.place, l.g, l.n, l.row, l.several,
            m.k, m.turn, m.filed, d.grp, d.turn, d.filed, d.priority, d.place, b.turn, b.filed
            into l_id, l_k, l_grp, l_name, l_turn, l_filed, l_waiting, l_priority, l_place, l_g, l_n, l_row, l_several,
            v_mark, v_mark_turn, v_mark_filed, v_edge_grp, v_edge_turn, v_edge_filed, v_edge_priority, v_edge_place,
            v_behind_turn, v_behind_filed
            from loaded l cross join marks m left join edge d on true
            left join lateral (select e.turn, e.filed from found e where (e.turn, e.filed) > (d.turn, d.filed)
                order by e.rank limit 1) as b on true;
        nl := coalesce(cardinality(l_id), 0);
        k_head := array_fill(0, array[nk]); k_tail := k_head; k_last := k_head;
        l_edge_turn := array_fill(null::bigint, array[nk]); l_edge_filed := l_edge_turn; l_state := '{}';
        v_loaded := '{}';
        if nl > 0 then
            -- A lane is ready when it has a job: one that only counts some hides nobody.
            l_next := array_fill(0, array[nl]); l_sibling := l_next; l_state := array_fill(0, array[nl]);
            l_from := array_fill(1, array[nl]); l_to := l_next; lm := '{}'; l_job := l_next; l_last_job := l_next;
            l_started := l_next;
            select max(t.g) into ng from unnest(l_g) as t (g);
            g_id := array_fill(0::bigint, array[ng]); g_turn := g_id; g_filed := g_id; g_first := array_fill(0, array[ng]);
            g_started := g_first; n_first := array_fill(0, array[nl]); l_same := l_next;
            for l in 1 .. nl loop
                k := l_k[l]; g := l_g[l];
                if k_head[k] = 0 then
                    k_head[k] := l;
                    v_loaded := v_loaded || k;
                else
                    l_next[k_tail[k]] := l;
                end if;
                k_tail[k] := l; k_last[k] := k_last[k] + 1;
                l_sibling[l] := g_first[g]; g_first[g] := l; l_same[l] := n_first[l_n[l]]; n_first[l_n[l]] := l;
                g_id[g] := l_grp[l]; g_turn[g] := l_turn[l]; g_filed[g] := l_filed[l];
            end loop;
            v_edge_g := array_position(g_id, v_edge_grp);
            -- A class that has more lanes than were loaded is known up to the last of them.
            for k in 1 .. nk loop
                if k_last[k] >= v_left + (v_rounds - 1) * 16 then
                    l_edge_turn[k] := l_turn[k_tail[k]]; l_edge_filed[k] := l_filed[k_tail[k]];
                end if;
            end loop;
            v_each := least(v_left, v_left / nl + 2);
            select array_agg(t.l::int), array_agg(w.priority), array_agg(w.place), array_agg(w.again), array_agg(w.big),
                array_agg(w.ctid) into j_lane, j_priority, j_place, j_again, j_big, j_row
                from unnest(l_id, l_priority, l_place) with ordinality as t (id, priority, place, l)
                cross join lateral (select u.priority, u.place, u.again, u.big, u.ctid from paceline.wait u
                    where u.lane = t.id and (u.priority, u.place) >= (t.priority, t.place)
                    order by u.priority, u.place limit v_each) as w;
            for x in 1 .. coalesce(cardinality(j_lane), 0) loop
                l := j_lane[x];
                if l_job[l] = 0 then l_job[l] := x; l_state[l] := 1; end if;
                l_last_job[l] := x;
            end loop;
            if true = any (k_grouped) then
                perform paceline.lock_group_keys(l_name, array(select k_id[u.k] from unnest(l_k) as u (k)));
                select array_agg(s.l), array_agg(s.id), array_agg(s.free), array_agg(s.guard)
                    into v_pair_k, v_ids, v_pair_lim, v_guards
                    from (select t.l::int as l, m.id, m.guard, least(paceline.admits(m, c.now), 2000000000)::int as free
                    from unnest(l_name, l_k) with ordinality as t (name, k, l)
                    cross join lateral (select o.grouped from paceline.class o where o.id = k_id[t.k] limit 1) as d
                    cross join lateral unnest(d.grouped) with ordinality as u (lim, place)
                    cross join lateral (select o.id from paceline.key o where o.lim = u.lim and o.grp = t.name limit 1) as y
                    cross join lateral (select * from paceline.meter o where o.id = y.id order by o.version desc limit 1) as m
                    where t.name <> '' order by t.l, u.place) as s;
                if array_position(v_pair_lim, null) is not null then
                    unusual := true;
                    exit;
                end if;
                for x in 1 .. coalesce(cardinality(v_pair_k), 0) loop
                    l := v_pair_k[x];
                    if l_to[l] = 0 then l_from[l] := x; end if;
                    l_to[l] := x;
                    -- Lanes of one group in several classes or queues share its keys.
                    p := coalesce(array_position(m_id, v_ids[x]), 0);
                    if p = 0 then
                        m_id := m_id || v_ids[x]; m_free := m_free || v_pair_lim[x]::bigint; m_taken := m_taken || 0::bigint;
                        m_guard := m_guard || v_guards[x];
                        p := cardinality(m_id);
                    end if;
                    lm := lm || p;
                end loop;
            end if;
        end if;
        n := 0; s_job := '{}'; f_name := '{}'; f_meter := '{}';
        <<turns>>
        while n < v_left and c.active <> '{}' loop
            if c.budget <= 0 then c.active := '{}'; exit; end if;
            if c.turn > cardinality(c.active) then c.turn := 1; end if;
            q := c.active[c.turn];
            v_best := 0;
            foreach k in array v_loaded loop
                continue when k_place[k] <> q;
                v_closed := false;
                for x in k_from[k] .. k_to[k] loop
                    if m_taken[km[x]] >= m_free[km[x]] then v_closed := true; exit; end if;
                end loop;
                continue when v_closed;
                l := k_head[k];
                -- A start in another queue may have filed it.
                while l > 0 and l_state[l] <> 1 loop
                    l := l_next[l];
                    k_head[k] := l;
                    if l = 0 then k_tail[k] := 0; end if;
                end loop;
                if l = 0 then
                    if l_edge_turn[k] is not null then v_more := true; exit turns; end if;
                    continue;
                end if;
                if l_edge_turn[k] is not null and (l_turn[l] > l_edge_turn[k]
                    or (l_turn[l] = l_edge_turn[k] and l_filed[l] > l_edge_filed[k])) then
                    v_more := true;
                    exit turns;
                end if;
                if l_job[l] > l_last_job[l] then v_more := true; exit turns; end if;
                if v_best = 0 or l_turn[l] < l_turn[v_best] then
                    v_best := l;
                elsif l_turn[l] = l_turn[v_best] then
                    if l_filed[l] < l_filed[v_best] then
                        v_best := l;
                    elsif l_filed[l] = l_filed[v_best] and (j_priority[l_job[l]], j_place[l_job[l]])
                        < (j_priority[l_job[v_best]], j_place[l_job[v_best]]) then
                        v_best := l;
                    end if;
                end if;
            end loop;
            if v_edge_grp is not null then
                -- Lanes that are not loaded: some of one group, from a head on, and all of the groups behind it.
                if v_best = 0 then v_more := true; exit; end if;
                if v_edge_g is not null then v_edge_turn := g_turn[v_edge_g]; v_edge_filed := g_filed[v_edge_g]; end if;
                if (l_turn[v_best], l_filed[v_best]) > (v_behind_turn, v_behind_filed)
                    or (l_turn[v_best], l_filed[v_best]) > (v_edge_turn, v_edge_filed)
                    or (l_grp[v_best] = v_edge_grp and (j_priority[l_job[v_best]], j_place[l_job[v_best]])
                        > (v_edge_priority, v_edge_place)) then
                    v_more := true;
                    exit;
                end if;
            end if;
            if v_best = 0 then
                c.active := array_remove(c.active, q);
                continue;
            end if;
            l := v_best; k := l_k[l]; g := l_g[l];
            if j_big[l_job[l]] then unusual := true; exit; end if;
            v_closed := false;
            for x in l_from[l] .. l_to[l] loop
                if m_taken[lm[x]] >= m_free[lm[x]] then v_closed := true; exit; end if;
            end loop;
            if v_closed then
                -- Its group may start nothing at all now.
                c.budget := c.budget - 1;
                l_state[l] := 9;
                k_head[k] := l_next[l];
                if k_head[k] = 0 then k_tail[k] := 0; end if;
                continue;
            end if;
            n := n + 1;
            s_job[n] := l_job[l];
            l_job[l] := l_job[l] + 1;
            l_waiting[l] := l_waiting[l] - 1;
            l_started[l] := l_started[l] + 1;
            g_started[g] := g_started[g] + 1;
            if g_turn[g] > v_vt[q] then v_vt[q] := g_turn[g]; end if;
            v_filings[q] := v_filings[q] + 1;
            v_turn := v_vt[q] + 65536;
            g_turn[g] := v_turn;
            g_filed[g] := v_filings[q];
            for x in k_from[k] .. k_to[k] loop m_taken[km[x]] := m_taken[km[x]] + 1; end loop;
            for x in l_from[l] .. l_to[l] loop m_taken[lm[x]] := m_taken[lm[x]] + 1; end loop;
            -- A start that filled a group's key files its lanes here and now.
            for x in l_from[l] .. l_to[l] loop
                p := lm[x];
                if m_taken[p] >= m_free[p] then
                    f_name := f_name || l_name[l]; f_meter := f_meter || m_id[p];
                    o := n_first[l_n[l]];
                    while o > 0 loop
                        if l_state[o] = 1 and l_waiting[o] > 0 then
                            for y in l_from[o] .. l_to[o] loop
                                if lm[y] = p then l_state[o] := 8; end if;
                            end loop;
                        end if;
                        o := l_same[o];
                    end loop;
                end if;
            end loop;
            -- The lanes of the group stand at its new turn. One that is not at the head of its class is of a closed one.
            o := g_first[g];
            while o > 0 loop
                k := l_k[o];
                p := k_head[k];
                while p > 0 and l_state[p] <> 1 loop p := l_next[p]; end loop;
                k_head[k] := p;
                if p = 0 then k_tail[k] := 0; end if;
                if p = o then
                    k_head[k] := l_next[o];
                    if k_head[k] = 0 then k_tail[k] := 0; end if;
                    l_next[o] := 0;
                    l_turn[o] := v_turn;
                    l_filed[o] := v_filings[q];
                    if l_state[o] = 1 and l_waiting[o] > 0 then
                        if k_head[k] = 0 then
                            k_head[k] := o; k_tail[k] := o;
                        elsif l_turn[k_tail[k]] <= v_turn then
                            l_next[k_tail[k]] := o; k_tail[k] := o;
                        elsif l_turn[k_head[k]] > v_turn then
                            l_next[o] := k_head[k]; k_head[k] := o;
                        else
                            p := k_head[k];
                            while l_turn[l_next[p]] <= v_turn loop p := l_next[p]; end loop;
                            l_next[o] := l_next[p]; l_next[p] := o;
                        end if;
                    end if;
                end if;
                o := l_sibling[o];
            end loop;
            c.turn := c.turn + 1;
        end loop;
        if n > 0 then
            c := paceline.write_starts(c, p_queues, v_vt, v_filings, j_place, j_again, j_row, s_job, km, lm, l_from, l_to,
                k_from, k_to, k_place, l_k, j_lane, m_id, m_guard, k_id, v_mark, v_mark_turn, v_mark_filed);
            w_row := '{}'; w_turn := '{}'; w_filed := '{}'; w_started := '{}'; w_priority := '{}'; w_place := '{}';
            v_ids := '{}';
            p := 0;
            for l in 1 .. nl loop
                g := l_g[l];
                continue when g_started[g] = 0;
                p := p + 1;
                w_row[p] := l_row[l]; w_turn[p] := g_turn[g]; w_filed[p] := g_filed[g]; w_started[p] := l_started[l];
                w_priority[p] := case when l_started[l] > 0 then j_priority[l_job[l] - 1] else l_priority[l] end;
                w_place[p] := case when l_started[l] > 0 then j_place[l_job[l] - 1] else l_place[l] end;
                if l_several[l] then v_ids := v_ids || l_grp[l]; end if;
            end loop;
            update paceline.lane u set version = u.version + 1, turn = t.turn, filed = t.filed,
                waiting = u.waiting - t.started, head_priority = t.priority, head_place = t.place
                from unnest(w_row, w_turn, w_filed, w_started, w_priority, w_place)
                    as t (row, turn, filed, started, priority, place) where u.ctid = t.row;
            if v_ids <> '{}' then
                -- Their lanes in other classes wait at the group's turn too.
                update paceline.lane u set version = u.version + 1, turn = g_turn[array_position(g_id, u.grp)],
                    filed = g_filed[array_position(g_id, u.grp)]
                    where u.waiting > 0 and u.ctid = any (paceline.lane_rows(array(
                        select y.id from paceline.grp r cross join lateral unnest(r.lanes) as y (id)
                        where r.id = any (v_ids) and not y.id = any (l_id))));
            end if;
        end if;
        -- Closed lanes are filed by what had started when their turn came, before all that started later counts.
        if 9 = any (l_state) then
            perform paceline.file_until(s.id, s.until) from (
                select t.id, (select max(paceline.opens_at(m, 1)) from paceline.class d,
                    lateral paceline.keys_of(d.grouped, t.name) as m where d.id = k_id[t.k]) as until
                from unnest(l_id, l_state, l_name, l_k) as t (id, state, name, k) where t.state = 9) as s
                where s.until > c.now;
        end if;
        if n > 0 then
            v_ids := '{}'; v_pair_k := '{}';
            for x in 1 .. cardinality(m_id) loop
                if m_taken[x] > 0 then v_ids := v_ids || m_id[x]; v_pair_k := v_pair_k || m_taken[x]::int; end if;
            end loop;
            if v_ids <> '{}' then
                perform paceline.charge_many(v_ids, v_pair_k::bigint[], c.now);
                perform paceline.trim_shared(v_ids, c.now);
            end if;
            if f_name <> '{}' then perform paceline.file_full(p_queues, f_name, f_meter, c.now); end if;
        end if;
        exit when not v_more or unusual;
    end loop;
end $$;

-- Keys of groups under the limits of their classes: made where they are missing, then locked in their order.
create function paceline.lock_group_keys(p_names text[], p_classes int[]) returns void language plpgsql as $$
declare
    v_ids bigint[];
    v_lims int[];
    v_names text[];
begin
    loop
        select array_agg(distinct y.id), array_agg(u.lim) filter (where y.id is null),
            array_agg(t.name) filter (where y.id is null) into v_ids, v_lims, v_names
            from unnest(p_names, p_classes) as t (name, class)
            cross join lateral (select o.grouped from paceline.class o where o.id = t.class limit 1) as d
            cross join lateral unnest(d.grouped) as u (lim)
            left join lateral (select o.id from paceline.key o where o.lim = u.lim and o.grp = t.name limit 1)
                as y on true
            where t.name <> '';
        exit when v_lims is null;
        -- Somebody else who makes one of them is waited for.
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
    perform from (select unnest(v_ids) as id order by 1) as s
        cross join lateral (select from paceline.meter o where o.id = s.id order by o.version desc limit 1
            for no key update) as m;
end $$;

-- Move started jobs from their lanes to active; the tables are written once each.
create function paceline.write_starts(inout c paceline.choosing, p_queues int[], p_vt bigint[], p_filings bigint[],
    j_place bigint[], j_again boolean[], j_row tid[], s_job int[], km int[], lm int[], l_from int[], l_to int[],
    k_from int[], k_to int[], k_place int[], l_k int[], j_lane int[], m_id bigint[], m_guard bigint[], k_id int[], p_mark int[],
    p_mark_turn bigint[], p_mark_filed bigint[]) language plpgsql as $$
declare
    v_line paceline.line;
    v_number int;
    v_seqs bigint[];
    v_rows tid[];
    v_queues int[];
    v_fences bigint[];
    v_again boolean := true = any (j_again);
    v_keys text[]; -- of each lane
    v_guards bigint[];
    v_guard bigint;
    v_meters bigint[];
begin
    if m_id <> '{}' then
        for l in 1 .. cardinality(l_k) loop
            v_meters := '{}';
            v_guard := 4611686018427387904;
            for x in k_from[l_k[l]] .. k_to[l_k[l]] loop
                v_meters := v_meters || m_id[km[x]];
                v_guard := least(v_guard, m_guard[km[x]]);
            end loop;
            for x in l_from[l] .. l_to[l] loop
                v_meters := v_meters || m_id[lm[x]];
                v_guard := least(v_guard, m_guard[lm[x]]);
            end loop;
            v_guards[l] := nullif(v_guard, 4611686018427387904);
            v_keys[l] := nullif(v_meters, '{}')::text;
        end loop;
    end if;
    select array_agg(abs(j_place[u.j])), array_agg(j_row[u.j]), array_agg(p_queues[k_place[l_k[j_lane[u.j]]]]),
        array_agg(nextval('paceline.fence')) into v_seqs, v_rows, v_queues, v_fences from unnest(s_job) as u (j);
    delete from paceline.wait where ctid = any (v_rows);
    if v_again then
        insert into paceline.lease (seq, space, queue, worker, fence, until, started_at, attempts_made, crashes, returns,
                due_at, progress, message, error, logs, meters, guard)
            select t.seq, c.space, t.queue, c.worker, t.fence, c.now + c.lease, c.now, coalesce(p.attempts_made, 0) + 1,
                coalesce(p.crashes, 0), coalesce(p.returns, 0), p.due_at, coalesce(p.progress, 0), p.message, p.error,
                p.logs, v_keys[j_lane[t.j]]::bigint[], v_guards[j_lane[t.j]]
            from unnest(v_seqs, v_queues, v_fences, s_job) as t (seq, queue, fence, j)
            left join lateral (select * from paceline.past o where o.seq = t.seq limit 1) as p on true;
        delete from paceline.past where seq = any (v_seqs);
    else
        insert into paceline.lease (seq, space, queue, worker, fence, until, started_at, attempts_made, crashes, returns,
                meters, guard)
            select t.seq, c.space, t.queue, c.worker, t.fence, c.now + c.lease, c.now, 1, 0, 0,
                v_keys[j_lane[t.j]]::bigint[], v_guards[j_lane[t.j]]
            from unnest(v_seqs, v_queues, v_fences, s_job) as t (seq, queue, fence, j);
    end if;
    for i in 1 .. cardinality(p_queues) loop
        v_number := cardinality(array_positions(v_queues, p_queues[i]));
        continue when v_number = 0;
        v_line := paceline.line_of(p_queues[i]);
        -- Marks take the place of earlier ones of their class.
        select array_agg(s.class), array_agg(s.turn), array_agg(s.filed)
            into v_line.low_class, v_line.low_turn, v_line.low_filed from (
            select distinct on (t.class) t.class, t.turn, t.filed from (
                select k_id[u.k], u.turn, u.filed, 0 from unnest(p_mark, p_mark_turn, p_mark_filed) as u (k, turn, filed)
                    where k_place[u.k] = i
                union all
                select *, 1 from unnest(v_line.low_class, v_line.low_turn, v_line.low_filed)) as t (class, turn, filed, old)
            order by t.class, t.old) as s;
        update paceline.line set version = version + 1, virtual_time = p_vt[i], filings = p_filings[i],
            waiting = waiting - v_number, seen_at = greatest(seen_at, c.now), lease_from = least(lease_from, c.now + c.lease),
            open_from = greatest(open_from, c.opened), low_class = v_line.low_class, low_turn = v_line.low_turn,
            low_filed = v_line.low_filed where queue = p_queues[i] and version >= v_line.version;
    end loop;
    c.started := c.started || v_seqs;
    c.fences := c.fences || v_fences;
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
    select array_agg(s.ctid), array_agg(s.until), bool_or(s.until >= 4611686018427387904)
        into v_rows, v_untils, v_parked from (
        select distinct on (e.id) e.ctid, paceline.opens_at(k, 1) as until
        from unnest(p_names, p_meters) with ordinality as t (name, meter, place)
        cross join lateral (select * from paceline.meter o where o.id = t.meter order by o.version desc limit 1) as k
        cross join lateral unnest(p_queues) as q (id)
        cross join lateral (select o.lanes from paceline.grp o where o.queue = q.id and o.name = t.name limit 1) as r
        cross join lateral unnest(r.lanes) as y (id)
        cross join lateral (select o.ctid, o.* from paceline.lane o where o.id = y.id order by o.version desc limit 1) as e
        cross join lateral (select from paceline.class o where o.id = e.class and k.lim = any (o.grouped) limit 1) as d
        where e.state = 1 and e.waiting > 0 order by e.id, t.place) as s where s.until > p_now;
    if v_rows is null then return; end if;
    if v_parked then
        -- Whoever frees a key of a parked lane has to tell its queue.
        for v_key in select k.id, k.version, array_agg(distinct e.queue) as queues
            from unnest(v_rows, v_untils) as t (row, until)
            cross join lateral (select * from paceline.lane o where o.ctid = t.row limit 1) as e
            cross join lateral (select o.grouped from paceline.class o where o.id = e.class limit 1) as d
            cross join lateral (select o.name from paceline.grp o where o.id = e.grp limit 1) as r
            cross join lateral paceline.keys_of(d.grouped, r.name) as k
            where t.until >= 4611686018427387904 group by k.id, k.version
        loop
            update paceline.meter u set version = u.version + 1,
                parked = u.parked || array(select unnest(v_key.queues) except select unnest(u.parked))
                where u.id = v_key.id and u.version >= v_key.version;
        end loop;
    end if;
    update paceline.lane l set version = l.version + 1,
        state = case when t.until >= 4611686018427387904 then 3 else 2 end,
        until = case when t.until >= 4611686018427387904 then l.until else t.until end
        from unnest(v_rows, v_untils) as t (row, until) where l.ctid = t.row;
end $$;
