-- Leases whose time is over.

-- End leases whose time is over: a dead worker's jobs wait again, its permits are gone. Returns how many.
create function paceline.take_back(p_space int, p_now bigint, p_most int, p_empty boolean, out number int,
    out wakes text[]) language plpgsql as $$
declare
    v_permit paceline.permit;
    v_queues int[];
    v_over record;
    v_error text := 'the worker that ran it died: its lease ended';
begin
    number := 0;
    wakes := '{}';
    for v_permit in select * from paceline.permit where space = p_space and until <= p_now
        order by until limit p_most for update skip locked
    loop
        number := number + 1;
        if paceline.end_permit(v_permit, false) then wakes := wakes || '*'::text; end if;
    end loop;
    -- Another claim that has a queue takes back its leases itself.
    select array_agg(s.id) into v_queues from (select q.id from paceline.queue q where q.space = p_space and exists (
        select from paceline.newest_queue_state(q.id) as n, paceline.lease o
        where o.queue = q.id and o.until between n.lease_from and p_now) order by q.id for no key update skip locked) as s;
    if v_queues is null then return; end if;
    select array_agg(s.seq) as seqs, array_agg(s.id) as ids, array_agg(s.fence) as fences,
        array_agg(paceline.failed_word(s.job, s.attempts_made - 1, paceline.crashed_text(s.crashes + 1, v_error)))
            filter (where s.crashes >= 2 and not s.cancel_asked) as failed into v_over from (
        select l.seq, l.fence, l.attempts_made, l.crashes, l.cancel_asked, j.id, j.job from (
            select s.* from unnest(v_queues) as q (id) cross join lateral paceline.newest_queue_state(q.id) as n
            cross join lateral (select * from paceline.lease o where o.queue = q.id
                and o.until between n.lease_from and p_now order by o.until limit p_most for update skip locked) as s) as l
        cross join lateral (select o.id, o as job from paceline.job o where o.seq = l.seq limit 1) as j
        order by l.until, l.fence limit p_most) as s;
    if v_over.seqs is null then return; end if;
    number := number + cardinality(v_over.seqs);
    wakes := wakes || (paceline.end_leases(p_space, p_now, v_over.ids, v_over.fences,
            array_fill('crashed'::text, array[cardinality(v_over.ids)]), array_fill(p_now, array[cardinality(v_over.ids)]),
            array_fill(null::bytea, array[cardinality(v_over.ids)]), array_fill(v_error, array[cardinality(v_over.ids)]),
            p_empty, true)).wakes || coalesce(v_over.failed, '{}');
end $$;

create function paceline.end_permit(p_permit paceline.permit, p_well boolean) returns boolean language plpgsql as $$
begin
    if p_permit.gate = 1 then perform paceline.abandon(p_permit.meters, p_permit.taken); end if;
    delete from paceline.permit where space = p_permit.space and id = p_permit.id;
    return paceline.free(p_permit.meters, array_fill(1, array[cardinality(p_permit.meters)]),
        array_fill(case when p_well then p_permit.started_at end, array[cardinality(p_permit.meters)]));
end $$;

create function paceline.next_lease_end(p_space int) returns bigint language sql volatile as $$
    select coalesce(least(
        (select min(s.until) from paceline.queue q
            cross join lateral (select o.lease_from from paceline.queue_state o
                where o.queue = q.id order by o.version desc limit 1) as n
            cross join lateral (select o.until from paceline.lease o
                where o.queue = q.id and o.until >= n.lease_from order by o.until limit 1) as s
            where q.space = p_space),
        (select until from paceline.permit where space = p_space order by until limit 1)), paceline.never())
$$;
