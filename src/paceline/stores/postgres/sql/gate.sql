-- Between claim and handler: a start whose handler would begin too late is decided again, as if it were claimed now.
-- Admitted, it is open: every window counts it until it is said to have begun, and from then on where it began.
-- `gate` of a lease: 0 it counts where it was stamped, 1 it is open, 2 it counts where it began.

-- How long this statement had waited before an instant; time before it arrived here is not in it.
create function paceline.waited(p_now bigint) returns bigint language sql stable as $$
    select greatest(p_now - (extract(epoch from statement_timestamp()) * 1000000)::bigint, 0)
$$;

-- Fold all entries that no decision can ask for, so that the outcome does not depend on when entries are trimmed.
create function paceline.fold_spent(p_meter bigint, p_parts bigint[], p_part int) returns bigint[]
language plpgsql as $$
declare
    b int := p_part * 8;
    v_gone record;
begin
    if p_parts[b + 4] - p_parts[b + 2] <= p_parts[b + 5] then return p_parts; end if;
    with gone as (
        delete from paceline.spent s where s.meter = p_meter and s.part = p_part
            and s.cum <= p_parts[b + 4] - p_parts[b + 2] returning s.at, s.cum
    )
    select max(at) as at, max(cum) as cum into v_gone from gone;
    if v_gone.cum is not null then
        p_parts[b + 5] := v_gone.cum;
        p_parts[b + 6] := v_gone.at;
    end if;
    return p_parts;
end $$;

-- Undo what a start took from the windows of a key, as long as it is known one by one; an empty entry is gone.
create function paceline.take_out(p_meter bigint, p_parts bigint[], p_cost bigint, p_at bigint) returns bigint[]
language plpgsql as $$
declare
    b int;
    v_cum bigint;
    v_before bigint;
    v_taken bigint;
begin
    for i in 0 .. cardinality(p_parts) / 8 - 1 loop
        b := i * 8;
        continue when not p_parts[b + 1] in (1, 5);
        p_parts := paceline.fold_spent(p_meter, p_parts, i);
        select s.cum into v_cum from paceline.spent s where s.meter = p_meter and s.part = i and s.at = p_at;
        continue when not found;
        select s.cum into v_before from paceline.spent s
            where s.meter = p_meter and s.part = i and s.cum < v_cum order by s.cum desc limit 1;
        v_before := coalesce(v_before, p_parts[b + 5]);
        v_taken := least(p_cost, v_cum - v_before);
        if v_cum - v_taken = v_before then
            delete from paceline.spent where meter = p_meter and part = i and at = p_at;
            if p_parts[b + 7] = p_at then
                p_parts[b + 7] := coalesce((select s.at from paceline.spent s
                    where s.meter = p_meter and s.part = i and s.at < p_at order by s.at desc limit 1), -1);
            end if;
        end if;
        update paceline.spent set cum = cum - v_taken where meter = p_meter and part = i and cum >= v_cum;
        p_parts[b + 4] := p_parts[b + 4] - v_taken;
    end loop;
    return p_parts;
end $$;

-- True when holds and windows admit a start now whose slot and spacing were decided before.
create function paceline.admits_late(m paceline.meter, p_cost bigint, p_now bigint) returns boolean
language sql stable as $$
    select m.hold_until <= p_now and not exists (select from generate_series(0, cardinality(m.parts) / 8 - 1) as i
        where m.parts[i * 8 + 1] = 1 and paceline.part_opens(m.id, m.parts, i, p_cost + m.open) > p_now)
$$;

-- So much more is open under each of these keys; what was dropped since is asked nothing.
create function paceline.open_up(p_meters bigint[], p_taken bigint[], p_sign int) returns void language sql as $$
    update paceline.meter m set version = m.version + 1, open = m.open + p_sign * t.cost
        from (select o.ctid, sum(coalesce(p_taken[u.place], 1))::bigint as cost
            from unnest(p_meters) with ordinality as u (id, place)
            cross join lateral (select k.ctid from paceline.meter k where k.id = u.id order by k.version desc limit 1) as o
            group by o.ctid) as t
        where m.ctid = t.ctid
$$;

-- A lease ends and nobody said that its open start began: it counts no more.
create function paceline.abandon(p_meters bigint[], p_taken bigint[]) returns void language plpgsql as $$
begin
    perform paceline.lock_keys(p_meters);
    perform paceline.open_up(p_meters, p_taken, -1);
end $$;

-- Take a start's own charge out and decide under present numbers and holds; only windows are asked again.
create function paceline.open_again(p_meters bigint[], p_taken bigint[], p_at bigint, p_now bigint) returns boolean
language plpgsql as $$
declare
    m paceline.meter;
begin
    for i in 1 .. coalesce(cardinality(p_meters), 0) loop
        m := paceline.meter_at(p_meters[i]);
        continue when m.id is null;
        m.parts := paceline.take_out(m.id, m.parts, coalesce(p_taken[i], 1), p_at);
        update paceline.meter set version = version + 1, parts = m.parts where id = m.id and version >= m.version;
    end loop;
    if exists (select from unnest(p_meters) with ordinality as u (id, place)
        cross join lateral paceline.meter_at(u.id) as k
        where k.id is not null and not paceline.admits_late(k, coalesce(p_taken[u.place], 1), p_now)) then
        return false;
    end if;
    perform paceline.open_up(p_meters, p_taken, 1);
    return true;
end $$;

-- What a start gave back is there for others: lanes under the keys of groups look again when their queues are folded.
create function paceline.give_room(p_space int, p_meters bigint[]) returns void language sql as $$
    insert into paceline.arrival (queue, what, lim, grp)
        select distinct g.queue, 2, m.lim, m.grp from paceline.meters(p_meters) as m
        join paceline.grp g on g.name = m.grp join paceline.queue q on q.id = g.queue and q.space = p_space
        where m.grp <> ''
$$;

-- Late starts, one after the other: admitted ones are open, the others go back to their places.
create type paceline.decided as (refused text[], lost text[], wakes text[], instant bigint);

create function paceline.decide_again(p_space int, p_now bigint, p_ids text[], p_fences bigint[], p_empty boolean)
returns paceline.decided language plpgsql /* by index */ as $$
declare
    v_answer paceline.decided := row ('{}'::text[], '{}'::text[], '{}'::text[], 0::bigint);
    v_job paceline.job;
    v_lease paceline.lease;
    v_empty boolean := paceline.wants_empty(p_space, p_empty);
begin
    perform paceline.expire(p_space, coalesce(p_now, paceline.clock_us()));
    v_answer.instant := paceline.lock_runs(p_space, p_now, p_ids, p_fences);
    for i in 1 .. cardinality(p_ids) loop
        select * into v_job from paceline.job where space = p_space and id = p_ids[i];
        select * into v_lease from paceline.lease where seq = v_job.seq and fence = p_fences[i];
        if not found then
            v_answer.lost := v_answer.lost || p_ids[i];
        elsif v_lease.gate = 0 then
            if paceline.open_again(v_lease.meters, v_lease.taken, v_lease.started_at, v_answer.instant) then
                update paceline.lease set gate = 1 where seq = v_lease.seq;
            else
                v_answer.refused := v_answer.refused || p_ids[i];
                perform paceline.move_starts(array[v_lease.seq], null);
                v_answer.wakes := v_answer.wakes || '*'::text || (paceline.end_leases(p_space, v_answer.instant,
                    array[p_ids[i]], array[p_fences[i]], array['released'], array[v_answer.instant], array[null::bytea],
                    array[null::text], v_empty)).wakes;
                perform paceline.give_room(p_space, v_lease.meters);
            end if;
        end if;
    end loop;
    v_answer.wakes := array(select distinct unnest(v_answer.wakes));
    perform paceline.notify(p_space, v_answer.wakes);
    return v_answer;
end $$;

-- Lock the queues, runs and permits that are named, and the keys they were charged to, each in order; gives the time
-- at which all are held, which stands still rather than go back.
create function paceline.lock_runs(p_space int, p_now bigint, p_ids text[], p_fences bigint[]) returns bigint
language plpgsql as $$
declare
    v_seqs bigint[];
    v_queues int[];
    v_meters bigint[];
begin
    select array_agg(s.seq), array_agg(distinct s.queue) into v_seqs, v_queues
        from unnest(p_ids, p_fences) as t (id, fence)
        cross join lateral (select o.seq from paceline.job o where o.id = t.id and o.space = p_space limit 1) as j
        cross join lateral (select o.seq, o.queue from paceline.lease o where o.seq = j.seq and o.fence = t.fence
            limit 1) as s;
    if v_queues is not null then
        perform from paceline.queue where id = any (v_queues) order by id for no key update;
    end if;
    select array_agg(u.meter) into v_meters from (
        (select s.meters from (select unnest(v_seqs) as seq order by 1) as t
            cross join lateral (select o.meters from paceline.lease o where o.seq = t.seq limit 1 for update) as s)
        union all
        (select s.meters from (select u.id from unnest(p_ids, p_fences) as u (id, fence) where u.fence = 0 order by 1) as t
            cross join lateral (select o.meters from paceline.permit o where o.space = p_space and o.id = t.id limit 1
                for update) as s)) as h cross join lateral unnest(h.meters) as u (meter);
    perform paceline.lock_keys(v_meters);
    return greatest(coalesce(p_now, paceline.clock_us()), (select max(m.seen_at) from paceline.meters(v_meters) as m));
end $$;

-- A grant came too late to begin: decide again; only windows are asked, all else was decided then.
create function paceline.acquire_late(p_space int, p_now bigint, p_limits text[], p_groups text[], p_costs bigint[],
    p_permit text, p_lease bigint, p_late bigint) returns paceline.grant_ language plpgsql /* by index */ as $$
declare
    v_answer paceline.grant_;
    v_meters bigint[];
    v_costs bigint[];
    v_permit paceline.permit;
begin
    perform paceline.expire(p_space, coalesce(p_now, paceline.clock_us()));
    -- Locked in their order, whatever the order of the targets; a limit that was dropped since is asked nothing.
    select coalesce(array_agg(t.meter order by t.place), '{}'), array_agg(t.cost order by t.place) into v_meters, v_costs
        from (select u.cost, u.place, (paceline.meter_of(u.lim, u.grp)).id as meter from (
            select l.id as lim, coalesce(t.grp, '') as grp, t.cost, t.place
                from unnest(p_limits, p_groups, p_costs) with ordinality as t (name, grp, cost, place)
                join paceline.lim l on l.space = p_space and l.name = t.name
                order by t.grp is not null, l.id, t.grp) as u) as t where t.meter is not null;
    select * into v_permit from paceline.permit where space = p_space and id = p_permit for update;
    if not found then
        insert into paceline.permit (space, id, started_at, until, meters, taken)
            values (p_space, p_permit, p_late, 0, v_meters, v_costs) returning * into v_permit;
        update paceline.meter set version = version + 1, in_flight = in_flight + 1 where ctid = any (array(
            select o.ctid from unnest(v_meters) as t (id) cross join lateral (select k.ctid from paceline.meter k
                where k.id = t.id order by k.version desc limit 1) as o));
    else
        perform paceline.lock_keys(v_permit.meters);
    end if;
    v_answer := row (true, greatest(coalesce(p_now, paceline.clock_us()),
        (select max(seen_at) from paceline.meters(v_meters))), 0, true, '{}'::text[], paceline.never(), 0);
    if v_permit.gate = 0 and not paceline.open_again(v_permit.meters, v_permit.taken, v_permit.started_at, v_answer.instant)
    then
        perform paceline.end_permit(v_permit, false);
        perform paceline.give_room(p_space, v_meters);
        v_answer.granted := false;
        v_answer.leased := false;
        v_answer.wakes := array['*'];
        v_answer.until := coalesce((select max(paceline.opens_at(m, t.cost)) from unnest(v_meters, v_costs) as t (id, cost)
            cross join lateral paceline.meter_at(t.id) as m), v_answer.instant);
        if v_answer.until >= paceline.never() then v_answer.until := paceline.next_lease_end(p_space); end if;
        perform paceline.notify(p_space, v_answer.wakes);
        return v_answer;
    end if;
    update paceline.permit set until = v_answer.instant + p_lease, gate = greatest(gate, 1)
        where space = p_space and id = p_permit;
    return v_answer;
end $$;
