-- The only short cut: a claim that finds one job in an idle queue without limits.

-- One job came to a queue in which nothing waits and nothing is limited: it is taken in and started at once, in two
-- statements instead of eight. Where it is anything else, nothing is done.
create function paceline.start_in_idle_queue(inout c paceline.choosing) language plpgsql as $$
declare
    p_queue int := c.queues[1];
    p_known int := c.knowns[1];
    a record;
begin
    select o.ctid as row, o.priority, o.place, w.ctid as wait, l.ctid as lane, n.ctid as line,
        greatest(l.turn, n.virtual_time + paceline.one()) as turn, n.filings + 1 as filed, k.class,
        coalesce(array_position(n.low_class, k.class), cardinality(n.low_class) + 1) as low, count(*) over () as arrivals,
        o.what = 0 and o.number = 1 and n.waiting = 0 and n.folding is null and l.waiting = 0 and not g.paused
            and cardinality(g.lanes) = 1 and g.lanes[1] = o.lane and g.classes[1] = k.class and not w.again and not w.big
            and not d.paused and (p_known is null or p_known = any (d.known_by)) as usual
        into a from (select t.ctid, t.* from paceline.queue_state t where t.queue = p_queue order by t.version desc limit 1) as n
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
        update paceline.lane u set version = u.version + 1, state = paceline.ready(), turn = a.turn + paceline.one(), filed = a.filed + 1,
            head_priority = a.priority, head_place = a.place where u.ctid = a.lane
    ), moved as (
        update paceline.queue_state u set version = u.version + 1, virtual_time = a.turn, filings = a.filed + 1,
            seen_at = greatest(u.seen_at, c.now), lease_from = least(u.lease_from, c.now + c.lease),
            open_from = greatest(u.open_from, c.now), low_class[a.low] = a.class, low_turn[a.low] = a.turn,
            low_filed[a.low] = a.filed where u.ctid = a.line
    ), begun as (
        insert into paceline.lease (seq, space, queue, worker, fence, until, started_at, attempts_made, crashes, returns)
            values (abs(a.place), c.space, p_queue, c.worker, nextval('paceline.fence'), c.now + c.lease, c.now, 1, 0, 0)
            returning seq, fence
    )
    select c.started || b.seq, c.fences || b.fence, c.guards || null::bigint, c.agains || false, '{}'
        into c.started, c.fences, c.guards, c.agains, c.active from begun b;
end $$;
