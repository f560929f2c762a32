-- How many finished jobs there are: rows that are only added, because ends take no lock that they could count under.

-- One row takes the place of those since the last one: what a read sums up stays short. `p_all`: also of those that some
-- other step had in its hands then.
create function paceline.sum_tally(p_queue int, p_all boolean) returns void language sql as $$
    with gone as (
        delete from paceline.tally where ctid = any (array(
            select t.ctid from paceline.tally t where t.queue = p_queue and t.id >= case when p_all then 0 else coalesce((
                select o.id from paceline.tally o where o.queue = p_queue and o.base order by o.id desc limit 1), 0) end
            for update skip locked))
        returning completed, failed, cancelled
    )
    insert into paceline.tally (queue, completed, failed, cancelled, base)
        select p_queue, sum(g.completed), sum(g.failed), sum(g.cancelled), true from gone g having count(*) > 0
$$;

-- Jobs of a queue ended in these states. Every so many rows they are summed up.
create function paceline.add_tally(p_queue int, p_states int[]) returns void language plpgsql as $$
declare
    v_id bigint;
begin
    insert into paceline.tally (queue, completed, failed, cancelled)
        values (p_queue, cardinality(array_positions(p_states, 4)), cardinality(array_positions(p_states, 5)),
            cardinality(array_positions(p_states, 6))) returning id into v_id;
    if v_id % 256 = 0 then perform paceline.sum_tally(p_queue, false); end if;
end $$;

-- Finished jobs are removed, or wait again.
create function paceline.forget_finished(p_seqs bigint[]) returns void language sql as $$
    with gone as (
        delete from paceline.done where seq = any (p_seqs) returning queue, state
    )
    insert into paceline.tally (queue, completed, failed, cancelled)
        select g.queue, -count(*) filter (where g.state = 4), -count(*) filter (where g.state = 5),
            -count(*) filter (where g.state = 6) from gone g group by g.queue
$$;
