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
                v_free := least(v_free, m.parts[b + 2]);
            else
                v_free := least(v_free, m.parts[b + 2] - m.parts[b + 4]
                    + coalesce(paceline.gone(m.id, m.parts, i, p_now), 0));
            end if;
        elsif m.parts[b + 1] > 2 then
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
        if p_parts[b + 1] = 1 then
            p_parts[b + 4] := p_parts[b + 4] + p_number;
            p_parts[b + 7] := greatest(p_now, p_parts[b + 7]);
        elsif p_parts[b + 1] > 2 then
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
        cross join lateral (select * from paceline.meter o where o.id = t.id limit 1) as m
        cross join lateral generate_series(0, cardinality(m.parts) / 8 - 1) as i where m.parts[i * 8 + 1] = 1
        on conflict (meter, part, at) do update set cum = excluded.cum;
    update paceline.meter m set parts = paceline.charged(m.parts, p_numbers[array_position(p_meters, m.id)], p_now),
        in_flight = m.in_flight + p_numbers[array_position(p_meters, m.id)], seen_at = p_now
        where m.id = any (p_meters);
end $$;

-- Fold old entries of shared rates: a few with every claim keep pace with what is added.
create function paceline.trim_shared(p_meters bigint[], p_now bigint) returns void language plpgsql as $$
declare
    m paceline.meter;
    v_parts bigint[];
begin
    for m in select k.* from paceline.meter k where k.id = any (p_meters) and k.grp = '' loop
        v_parts := m.parts;
        for i in 0 .. cardinality(v_parts) / 8 - 1 loop
            if v_parts[i * 8 + 1] = 1 then v_parts := paceline.trim_spent(m.id, v_parts, i, p_now, 2); end if;
        end loop;
        if v_parts <> m.parts then update paceline.meter set parts = v_parts where id = m.id; end if;
    end loop;
end $$;

-- Starts jobs until the slots are full, nobody may start, or something unusual comes: then `unusual` is true.
create function paceline.take_turns(inout c paceline.choosing, p_queues int[], p_knowns int[], p_slots int,
    out unusual boolean) language plpgsql as $$
declare
    v_left int;
    v_rounds int := 0;
    v_more boolean; -- what was loaded is used up, and there is more
    v_vt bigint[];
    v_filings bigint[];
    -- classes
    nk int; k_id int[]; k_place int[]; k_grouped boolean[]; k_head int[]; k_tail int[]; k_last int[]; k_from int[];
    k_to int[]; v_pair_k int[]; v_pair_lim int[]; km int[]; v_open int[]; v_open_k int[];
    -- keys
    m_id bigint[]; m_lim int[]; m_free bigint[]; m_taken bigint[]; v_shared int;
    -- lanes
    nl int; l_id bigint[]; l_k int[]; l_grp bigint[]; l_name text[]; l_turn bigint[]; l_filed bigint[]; l_waiting int[];
    l_priority bigint[]; l_place bigint[]; l_g int[]; l_n int[]; l_next int[]; l_sibling int[]; l_same int[]; l_state int[]; l_from int[];
    l_to int[]; lm int[]; l_job int[]; l_last_job int[]; l_started int[]; l_edge_turn bigint[]; l_edge_filed bigint[];
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
            from unnest(p_queues) with ordinality as t (id, place) join paceline.queue s on s.id = t.id;
        select array_agg(s.id), array_agg(s.place), array_agg(s.grouped <> '{}') into k_id, k_place, k_grouped from (
            select k.id, t.place, k.grouped from unnest(p_queues, p_knowns) with ordinality as t (id, known, place)
            join paceline.class k on k.queue = t.id where t.place = any (c.active) and not k.paused
                and (t.known is null or t.known = any (k.known_by)) order by k.id) as s;
        nk := coalesce(cardinality(k_id), 0);
        exit when nk = 0;
        -- Shared keys: how many starts each admits now.
        select array_agg(s.k), array_agg(s.lim) into v_pair_k, v_pair_lim from (select t.k, u.lim
            from unnest(k_id) with ordinality as t (id, k) join paceline.class d on d.id = t.id,
            unnest(d.shared) as u (lim) order by t.k) as s;
        m_id := '{}'; m_lim := '{}'; m_free := '{}'; m_taken := '{}'; km := '{}';
        if v_pair_k is not null then
            select array_agg(m.id), array_agg(m.lim), array_agg(paceline.admits(m, c.now)),
                array_agg(0) into m_id, m_lim, m_free, m_taken
                from paceline.meter m where m.lim = any (v_pair_lim) and m.grp = '';
            if array_position(m_free, null) is not null then
                unusual := true;
                exit;
            end if;
        end if;
        v_shared := cardinality(m_id);
        k_from := array_fill(1, array[nk]); k_to := array_fill(0, array[nk]);
        for x in 1 .. coalesce(cardinality(v_pair_k), 0) loop
            k := v_pair_k[x];
            if k_to[k] = 0 then k_from[k] := x; end if;
            k_to[k] := x;
            km := km || array_position(m_lim, v_pair_lim[x]);
        end loop;
        v_open := '{}'; v_open_k := '{}';
        for k in 1 .. nk loop
            v_closed := false;
            for x in k_from[k] .. k_to[k] loop v_closed := v_closed or m_free[km[x]] <= 0; end loop;
            if not v_closed then v_open := v_open || k_id[k]; v_open_k := v_open_k || k; end if;
        end loop;
        -- The next lanes of each open class by turn.
        select array_agg(s.id), array_agg(s.k), array_agg(s.grp), array_agg(s.name), array_agg(s.turn),
            array_agg(s.filed), array_agg(s.waiting), array_agg(s.head_priority), array_agg(s.head_place),
            array_agg(s.g), array_agg(s.n) into l_id, l_k, l_grp, l_name, l_turn, l_filed, l_waiting, l_priority,
            l_place, l_g, l_n
            from (select e.*, r.name, t.k, dense_rank() over (order by e.grp) as g, dense_rank() over (order by r.name) as n
                from unnest(v_open, v_open_k) as t (id, k) join paceline.class d on d.id = t.id
                cross join lateral (select * from paceline.lane u where u.class = t.id and u.state = 1 and u.waiting > 0
                    and (u.turn, u.filed) >= (d.lowest, d.lowest_filed)
                    order by u.turn, u.filed limit v_left + (v_rounds - 1) * 16) as e
                join paceline.grp r on r.id = e.grp order by t.k, e.turn, e.filed) as s;
        nl := coalesce(cardinality(l_id), 0);
        k_head := array_fill(0, array[nk]); k_tail := k_head; k_last := k_head;
        l_edge_turn := array_fill(null::bigint, array[nk]); l_edge_filed := l_edge_turn; l_state := '{}';
        if nl > 0 then
            l_next := array_fill(0, array[nl]); l_sibling := l_next; l_state := array_fill(1, array[nl]);
            l_from := array_fill(1, array[nl]); l_to := l_next; lm := '{}'; l_job := l_next; l_last_job := l_next;
            l_started := l_next;
            select max(t.g) into ng from unnest(l_g) as t (g);
            g_id := array_fill(0::bigint, array[ng]); g_turn := g_id; g_filed := g_id; g_first := array_fill(0, array[ng]);
            g_started := g_first; n_first := array_fill(0, array[nl]); l_same := l_next;
            for l in 1 .. nl loop
                k := l_k[l]; g := l_g[l];
                if k_head[k] = 0 then
                    k_head[k] := l;
                    update paceline.class set lowest = l_turn[l], lowest_filed = l_filed[l]
                        where id = k_id[k] and (lowest, lowest_filed) <> (l_turn[l], l_filed[l]);
                else 
                    l_next[k_tail[k]] := l;
                end if;
                k_tail[k] := l; k_last[k] := k_last[k] + 1;
                l_sibling[l] := g_first[g]; g_first[g] := l; l_same[l] := n_first[l_n[l]]; n_first[l_n[l]] := l;
                g_id[g] := l_grp[l]; g_turn[g] := l_turn[l]; g_filed[g] := l_filed[l];
            end loop;
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
            for x in 1 .. cardinality(j_lane) loop
                l := j_lane[x];
                if l_job[l] = 0 then l_job[l] := x; end if;
                l_last_job[l] := x;
            end loop;
            if true = any (k_grouped) then
                perform paceline.lock_group_keys(l_id);
                select array_agg(s.l), array_agg(s.id), array_agg(s.free) into v_pair_k, v_ids, v_pair_lim
                    from (select t.l::int as l, m.id, least(paceline.admits(m, c.now), 2000000000)::int as free
                    from unnest(l_name, l_k) with ordinality as t (name, k, l)
                    cross join lateral (select o.grouped from paceline.class o where o.id = k_id[t.k] limit 1) as d
                    cross join lateral unnest(d.grouped) with ordinality as u (lim, place)
                    cross join lateral (select * from paceline.meter o where o.lim = u.lim and o.grp = t.name limit 1) as m
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
            for k in 1 .. nk loop
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
                if l_job[l] = 0 or l_job[l] > l_last_job[l] then v_more := true; exit turns; end if;
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
                k_from, k_to, k_place, l_k, j_lane, m_id);
            v_ids := '{}'; v_pair_k := '{}';
            for x in 1 .. cardinality(m_id) loop
                if m_taken[x] > 0 then v_ids := v_ids || m_id[x]; v_pair_k := v_pair_k || m_taken[x]::int; end if;
            end loop;
            if v_ids <> '{}' then
                perform paceline.charge_many(v_ids, v_pair_k::bigint[], c.now);
                perform paceline.trim_shared(m_id[1:v_shared], c.now);
            end if;
            v_ids := '{}';
            for g in 1 .. ng loop
                if g_started[g] > 0 then v_ids := v_ids || g_id[g]; end if;
            end loop;
            update paceline.grp u set waiting = u.waiting - g_started[array_position(g_id, u.id)],
                turn = g_turn[array_position(g_id, u.id)], filed = g_filed[array_position(g_id, u.id)]
                where u.id = any (v_ids);
            update paceline.lane u set turn = g_turn[array_position(g_id, u.grp)],
                filed = g_filed[array_position(g_id, u.grp)],
                waiting = u.waiting - coalesce(l_started[array_position(l_id, u.id)], 0),
                head_priority = case when l_started[array_position(l_id, u.id)] > 0
                    then j_priority[l_job[array_position(l_id, u.id)] - 1] else u.head_priority end,
                head_place = case when l_started[array_position(l_id, u.id)] > 0
                    then j_place[l_job[array_position(l_id, u.id)] - 1] else u.head_place end
                where u.grp = any (v_ids);
            if f_name <> '{}' then perform paceline.file_full(p_queues, f_name, f_meter, c.now); end if;
        end if;
        if 9 = any (l_state) then
            perform paceline.file_until(t.id, (select max(paceline.opens_at(m, 1)) from paceline.lane e
                join paceline.class d on d.id = e.class join paceline.grp r on r.id = e.grp
                join paceline.meter m on m.lim = any (d.grouped) and m.grp = r.name where e.id = t.id))
                from unnest(l_id, l_state) as t (id, state) where t.state = 9;
        end if;
        exit when not v_more or unusual;
    end loop;
end $$;

-- Keys of the groups of these lanes: made where they are missing, then locked in their order.
create function paceline.lock_group_keys(p_lanes bigint[]) returns void language plpgsql as $$
declare
    v_ids bigint[];
    v_missing boolean;
begin
    for attempt in 1 .. 2 loop
        select array_agg(distinct m.id), bool_or(m.id is null) into v_ids, v_missing from unnest(p_lanes) as t (id)
            cross join lateral (select o.grp, o.class from paceline.lane o where o.id = t.id limit 1) as e
            cross join lateral (select o.name from paceline.grp o where o.id = e.grp limit 1) as r
            cross join lateral (select o.grouped from paceline.class o where o.id = e.class limit 1) as d
            cross join lateral unnest(d.grouped) as u (lim)
            left join lateral (select o.id from paceline.meter o where o.lim = u.lim and o.grp = r.name limit 1)
                as m on true
            where r.name <> '';
        exit when not coalesce(v_missing, false);
        perform paceline.meter_of(s.lim, s.name) from (
            select distinct u.lim, r.name from unnest(p_lanes) as t (id) join paceline.lane e on e.id = t.id
            join paceline.grp r on r.id = e.grp and r.name <> '' join paceline.class d on d.id = e.class
            cross join lateral unnest(d.grouped) as u (lim)
            where not exists (select from paceline.meter m where m.lim = u.lim and m.grp = r.name) order by 1, 2) as s;
    end loop;
    perform from paceline.meter where id = any (v_ids) order by id for no key update;
end $$;

-- Move started jobs from their lanes to active; the tables are written once each.
create function paceline.write_starts(inout c paceline.choosing, p_queues int[], p_vt bigint[], p_filings bigint[],
    j_place bigint[], j_again boolean[], j_row tid[], s_job int[], km int[], lm int[], l_from int[], l_to int[],
    k_from int[], k_to int[], k_place int[], l_k int[], j_lane int[], m_id bigint[]) language plpgsql as $$
declare
    v_seqs bigint[] := '{}';
    v_rows tid[] := '{}';
    v_queues int[] := '{}';
    v_fences bigint[] := '{}';
    v_again boolean := false;
    v_keys text[];
    l int;
    v_meters bigint[];
begin
    for n in 1 .. cardinality(s_job) loop
        v_seqs[n] := abs(j_place[s_job[n]]);
        v_rows[n] := j_row[s_job[n]];
        v_queues[n] := p_queues[k_place[l_k[j_lane[s_job[n]]]]];
        v_fences[n] := nextval('paceline.fence');
        v_again := v_again or j_again[s_job[n]];
    end loop;
    if m_id <> '{}' then
        for n in 1 .. cardinality(s_job) loop
            l := j_lane[s_job[n]];
            v_meters := '{}';
            for x in k_from[l_k[l]] .. k_to[l_k[l]] loop v_meters := v_meters || m_id[km[x]]; end loop;
            for x in l_from[l] .. l_to[l] loop v_meters := v_meters || m_id[lm[x]]; end loop;
            v_keys[n] := v_meters::text;
        end loop;
    end if;
    delete from paceline.wait where ctid = any (v_rows);
    insert into paceline.lease (seq, space, queue, worker, fence, until, started_at, attempts_made, crashes, returns,
            due_at, progress, message, error, logs, meters, taken)
        select t.seq, c.space, t.queue, c.worker, t.fence, c.now + c.lease, c.now, coalesce(p.attempts_made, 0) + 1,
            coalesce(p.crashes, 0), coalesce(p.returns, 0), p.due_at, coalesce(p.progress, 0), p.message, p.error, p.logs,
            nullif(t.keys, '{}')::bigint[],
            case when t.keys <> '{}' then array_fill(1::bigint, array[cardinality(t.keys::bigint[])]) end
        from unnest(v_seqs, v_queues, v_keys, v_fences) as t (seq, queue, keys, fence)
        left join lateral (select * from paceline.past o where v_again and o.seq = t.seq limit 1) as p on true;
    if v_again then delete from paceline.past where seq = any (v_seqs); end if;
    update paceline.queue q set virtual_time = t.vt, filings = t.filings
        from unnest(p_queues, p_vt, p_filings) as t (id, vt, filings)
        where q.id = t.id and (q.virtual_time, q.filings) <> (t.vt, t.filings);
    c.started := c.started || v_seqs;
    c.fences := c.fences || v_fences;
end $$;

-- Starts filled keys of groups: their ready lanes, in all queues that are locked, are blocked until the key opens, or parked until something finishes.
create function paceline.file_full(p_queues int[], p_names text[], p_meters bigint[], p_now bigint) returns void
language plpgsql as $$
begin
    with filled as (
        select distinct on (e.id) e.id, e.queue, m.id as meter, paceline.opens_at(m, 1) as until
        from unnest(p_names, p_meters) with ordinality as t (name, meter, place)
        join paceline.meter m on m.id = t.meter cross join lateral unnest(p_queues) as q (id)
        cross join lateral (select o.id from paceline.grp o where o.queue = q.id and o.name = t.name limit 1) as r
        join paceline.lane e on e.grp = r.id and e.state = 1 and e.waiting > 0
        join paceline.class d on d.id = e.class and m.lim = any (d.grouped) order by e.id, t.place
    ), changed as (
        update paceline.lane l set state = case when f.until >= 4611686018427387904 then 3 else 2 end,
            until = case when f.until >= 4611686018427387904 then l.until else f.until end
        from filled f where l.id = f.id and f.until > p_now
    )
    update paceline.meter m set parked = m.parked || array(select unnest(s.queues) except select unnest(m.parked))
        from (select k.id, array_agg(distinct f.queue) as queues from filled f join paceline.lane e on e.id = f.id
            join paceline.grp r on r.id = e.grp join paceline.class d on d.id = e.class
            join paceline.meter k on k.lim = any (d.grouped) and k.grp = r.name
            where f.until >= 4611686018427387904 group by k.id) as s
        where m.id = s.id;
end $$;
