-- What operators do to jobs and queues: move, pause, drain, clean, obliterate. Each locks its queues first.

-- Where a job is: 1 waiting, 2 delayed, 3 active, 4 completed, 5 failed, 6 cancelled, as those see it who look.
create function paceline.state_of(p_job paceline.job, p_now bigint) returns int language sql volatile as $$
    select case when exists (select from paceline.lease where seq = p_job.seq) then 3
        else coalesce((select d.state from paceline.done d where d.seq = p_job.seq)::int,
            case when coalesce((select p.due_at from paceline.past p where p.seq = p_job.seq), p_job.due_at) > p_now
                then 2 else 1 end) end
$$;

create function paceline.lock_and_fold(p_queues int[]) returns void language plpgsql as $$
begin
    perform from paceline.queue where id = any (p_queues) order by id for no key update;
    perform paceline.fold(t.id) from (select unnest(p_queues) as id order by 1) as t;
end $$;

-- All or none: every job is checked before the first one moves.
create function paceline.move(p_space int, p_now bigint, p_ids text[], p_move text, p_states int[], p_empty boolean)
returns text[] language plpgsql /* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_id text;
    v_job paceline.job;
    v_jobs bigint[] := '{}';
    v_there bigint[];
    v_queues int[];
    v_state int;
    v_holder text;
    v_holders jsonb := '{}';
    v_wakes text[] := '{}';
begin
    perform paceline.expire(p_space, v_now);
    if p_move = 'retry' then
        -- Before any lock: an adder that has such a key may take its time.
        for v_job in select j.* from unnest(p_ids) with ordinality as t (id, place)
            join paceline.job j on j.space = p_space and j.id = t.id where j.uniq is not null order by j.uniq, t.place
        loop
            v_holder := paceline.take_unique(v_job.queue, v_job.uniq, v_job.seq, v_job.uniq_until, v_now);
            if v_holder <> v_job.id then v_holders := v_holders || jsonb_build_object(v_job.id, v_holder); end if;
        end loop;
    end if;
    select coalesce(array_agg(seq), '{}'), coalesce(array_agg(distinct queue), '{}') into v_there, v_queues
        from paceline.job where space = p_space and id = any (p_ids);
    perform paceline.lock_and_fold(v_queues);
    v_now := coalesce(p_now, paceline.clock_us());
    for v_id in select t.id from unnest(p_ids) with ordinality as t (id, place) group by t.id order by min(t.place) loop
        -- One that came after the fold is in no lane yet: this move was before it.
        select * into v_job from paceline.job where space = p_space and id = v_id and seq = any (v_there);
        if not found then
            perform paceline.fail('not found', jsonb_build_object('error', 'not found', 'id', v_id));
        end if;
        v_jobs := v_jobs || v_job.seq;
    end loop;
    for v_job in select j.* from unnest(v_jobs) with ordinality as t (seq, place)
        join paceline.job j on j.seq = t.seq order by t.place
    loop
        -- A run that ends at this very moment has ended before or after.
        perform from paceline.lease where seq = v_job.seq for update;
        v_state := paceline.state_of(v_job, v_now);
        if not v_state = any (p_states) then
            perform paceline.fail('not allowed', jsonb_build_object('error', 'not allowed', 'id', v_job.id,
                'state', v_state, 'move', p_move));
        end if;
        if v_holders ? v_job.id then
            perform paceline.fail('not allowed', jsonb_build_object('error', 'not allowed', 'id', v_job.id,
                'state', v_state, 'move', p_move, 'holder', v_holders ->> v_job.id));
        end if;
    end loop;
    for v_job in select j.* from unnest(v_jobs) with ordinality as t (seq, place)
        join paceline.job j on j.seq = t.seq order by t.place
    loop
        v_wakes := v_wakes || paceline.move_one(v_job, p_move, v_now, paceline.wants_empty(p_space, p_empty));
    end loop;
    perform paceline.notify(p_space, v_wakes);
    return v_wakes;
end $$;

-- Null when another live job has the unique key of one that is to be retried.
create function paceline.move_one(p_job paceline.job, p_move text, p_now bigint, p_empty boolean) returns text[]
language plpgsql as $$
declare
    v_wakes text[] := paceline.drop_reservations(p_job.space, p_job.id, false);
    v_worker text;
    v_done paceline.done;
begin
    if p_move = 'cancel' then
        update paceline.lease set cancel_asked = true where seq = p_job.seq returning worker into v_worker;
        if found then
            v_wakes := v_wakes || ('w' || v_worker);
        else
            perform paceline.leave(p_job);
            v_wakes := v_wakes || paceline.end_waiting(p_job, 6, p_now, null, p_empty);
        end if;
    elsif p_move = 'promote' then
        perform paceline.leave(p_job);
        insert into paceline.past as p (seq, attempts_made, crashes, returns, due_at, progress, fence)
            values (p_job.seq, 0, 0, 0, p_now, 0, 0) on conflict (seq) do update set due_at = excluded.due_at;
        perform paceline.arrive(array[p_job.seq], array[p_now], array[true], p_now);
    elsif p_move = 'retry' then
        if p_job.uniq is not null
            and paceline.take_unique(p_job.queue, p_job.uniq, p_job.seq, p_job.uniq_until, p_now) <> p_job.id then
            return null;
        end if;
        select * into v_done from paceline.done where seq = p_job.seq;
        perform paceline.forget_finished(array[p_job.seq]);
        insert into paceline.past (seq, attempts_made, crashes, returns, due_at, progress, fence, logs)
            values (p_job.seq, 0, 0, 0, p_now, 0, v_done.fence, v_done.logs);
        perform paceline.arrive(array[p_job.seq], array[p_now], array[true], p_now);
    else
        v_wakes := v_wakes || paceline.remove_jobs(p_job.space, array[p_job.seq]);
    end if;
    return v_wakes || ('q' || p_job.queue);
end $$;

-- Delete jobs that do not run; each table is written once. Needs the locks of their queues, and everything folded in.
create function paceline.remove_jobs(p_space int, p_seqs bigint[]) returns text[] language plpgsql as $$
declare
    v_waiting bigint[];
    v_wakes text[] := '{}';
    v_id text;
begin
    -- A run that ends at this very moment may take its job along.
    select array_agg(t.seq) into v_waiting from unnest(p_seqs) as t (seq)
        where exists (select from paceline.job j where j.seq = t.seq)
        and not exists (select from paceline.lease s where s.seq = t.seq)
        and not exists (select from paceline.done d where d.seq = t.seq);
    if v_waiting is not null then
        perform paceline.leave_many(v_waiting);
        -- Few jobs have room kept for them, and few keys keep any.
        for v_id in select j.id from paceline.lim l join paceline.meter m on m.lim = l.id and m.reserved_by is not null
            join paceline.job j on j.id = m.reserved_by and j.space = p_space
            where l.space = p_space and not m.reserved_permit and j.seq = any (v_waiting)
        loop
            v_wakes := v_wakes || paceline.drop_reservations(p_space, v_id, false);
        end loop;
    end if;
    delete from paceline.uniq where ctid = any (array(
        select u.ctid from unnest(p_seqs) as t (seq)
        cross join lateral (select * from paceline.job o where o.seq = t.seq and o.uniq is not null limit 1) as j
        cross join lateral (select o.ctid from paceline.uniq o where o.queue = j.queue and o.key = j.uniq
            and o.seq = j.seq limit 1 for update skip locked) as u));
    select v_wakes || coalesce(array_agg(distinct 'j' || w.id), '{}') into v_wakes from paceline.waiter w
        where w.space = p_space and exists (select from paceline.job j
            where j.id = w.id and j.space = p_space and j.seq = any (p_seqs));
    delete from paceline.lease where seq = any (p_seqs);
    perform paceline.forget_finished(p_seqs);
    delete from paceline.past where seq = any (p_seqs);
    delete from paceline.job where seq = any (p_seqs);
    return v_wakes;
end $$;

-- Jobs that have not started leave their lanes, or the place where they wait to be due.
create function paceline.leave_many(p_seqs bigint[]) returns void language plpgsql as $$
declare
    v_delayed tid[];
    v_rows tid[];
    v_lanes bigint[];
    v_numbers int[];
begin
    select array_agg(d.ctid) into v_delayed from unnest(p_seqs) as t (seq)
        cross join lateral (select * from paceline.job o where o.seq = t.seq limit 1) as j
        left join lateral (select o.due_at from paceline.past o where o.seq = t.seq limit 1) as p on true
        cross join lateral (select o.ctid from paceline.delayed o where o.queue = j.queue
            and o.due_at = coalesce(p.due_at, j.due_at) and o.place = j.place limit 1) as d;
    select array_agg(w.ctid), array_agg(w.lane) into v_rows, v_lanes from unnest(p_seqs) as t (seq)
        cross join lateral (select * from paceline.job o where o.seq = t.seq limit 1) as j
        cross join lateral (select o.class from paceline.task o where o.queue = j.queue and o.name = j.task limit 1) as k
        cross join lateral (select o.lanes[array_position(o.classes, k.class)] as lane from paceline.grp o
            where o.queue = j.queue and o.name = coalesce(j.grp, '') limit 1) as g
        cross join lateral (select o.ctid, o.lane from paceline.wait o where o.lane = g.lane
            and o.priority = j.priority and o.place = j.place limit 1) as w;
    if coalesce(cardinality(v_delayed), 0) + coalesce(cardinality(v_rows), 0) <> cardinality(p_seqs) then
        raise exception 'of % jobs, % are in no lane', cardinality(p_seqs),
            cardinality(p_seqs) - coalesce(cardinality(v_delayed), 0) - coalesce(cardinality(v_rows), 0);
    end if;
    delete from paceline.delayed where ctid = any (v_delayed);
    delete from paceline.wait where ctid = any (v_rows);
    select coalesce(array_agg(s.id), '{}'), coalesce(array_agg(s.number), '{}') into v_lanes, v_numbers
        from (select t.id, count(*)::int as number from unnest(v_lanes) as t (id) group by t.id) as s;
    for i in 1 .. cardinality(v_lanes) loop
        update paceline.lane set version = version + 1, waiting = waiting - v_numbers[i],
            state = case when state = paceline.blocked() and waiting > v_numbers[i] then paceline.ready() else state end
            where ctid = any (paceline.lane_rows(array[v_lanes[i]]));
    end loop;
    perform paceline.count_left(v_lanes, v_numbers);
    perform paceline.forget_lowest(array(select distinct l.queue from unnest(v_lanes) as t (id)
        cross join lateral paceline.newest_lane(t.id) as l));
end $$;

-- A part of what is done to a queue as a whole: `last` is the job that it came to, null when there are no more; nothing
-- that was added after the first part began, after `upto`, is touched.
create type paceline.part as (number int, wakes text[], last bigint, upto bigint);

-- The next jobs of a queue, whatever their state.
create function paceline.part_of(p_queue int, p_after bigint, p_upto bigint, p_most int) returns bigint[]
language sql stable as $$
    select coalesce(array_agg(s.seq), '{}') from (select j.seq from paceline.job j
        where j.queue = p_queue and j.seq > p_after and j.seq <= p_upto order by j.seq limit p_most) as s
$$;

-- Lock a queue and pick the jobs of a part. What came is taken in after that: whatever was picked is in its lane then,
-- and a job that comes at this very moment, and is not yet in one, was not picked.
create function paceline.begin_part(p_queue int, p_after bigint, p_upto bigint, p_most int, out part paceline.part,
    out seqs bigint[]) language plpgsql as $$
begin
    perform from paceline.queue where id = p_queue for no key update;
    part.number := 0;
    part.wakes := '{}';
    part.upto := coalesce(p_upto, (select seq from paceline.job where queue = p_queue order by seq desc limit 1), 0);
    seqs := paceline.part_of(p_queue, p_after, part.upto, p_most);
    part.last := seqs[p_most];
    perform paceline.fold(p_queue);
end $$;

create function paceline.move_all(p_space int, p_now bigint, p_queue int, p_state int, p_move text, p_states int[],
    p_empty boolean, p_after bigint, p_upto bigint, p_most int) returns paceline.part language plpgsql /* by index */ as $$
declare
    v_begun record;
    v_part paceline.part;
    v_now bigint;
    v_seqs bigint[];
    v_job paceline.job;
    v_wakes text[];
begin
    select * into v_begun from paceline.begin_part(p_queue, p_after, p_upto, p_most);
    v_part := v_begun.part;
    v_seqs := v_begun.seqs;
    v_now := coalesce(p_now, paceline.clock_us());
    if not p_state = any (p_states) then
        perform paceline.fail('not allowed', jsonb_build_object('error', 'not allowed',
            'id', (select name from paceline.queue where id = p_queue), 'state', p_state, 'move', p_move));
    end if;
    for v_job in select j.* from unnest(v_seqs) as t (seq)
        cross join lateral (select * from paceline.job o where o.seq = t.seq limit 1) as j
    loop
        if paceline.state_of(v_job, v_now) = p_state then
            v_wakes := paceline.move_one(v_job, p_move, v_now, p_empty);
            v_part.number := v_part.number + (v_wakes is not null)::int;
            v_part.wakes := v_part.wakes || v_wakes;
        end if;
    end loop;
    v_part.wakes := array(select distinct unnest(v_part.wakes));
    perform paceline.notify(p_space, v_part.wakes);
    return v_part;
end $$;

-- Remove what has not started.
create function paceline.drain(p_space int, p_queue int, p_after bigint, p_upto bigint, p_most int)
returns paceline.part language plpgsql /* by index */ as $$
declare
    v_begun record;
    v_part paceline.part;
    v_seqs bigint[];
begin
    select * into v_begun from paceline.begin_part(p_queue, p_after, p_upto, p_most);
    v_part := v_begun.part;
    v_seqs := v_begun.seqs;
    v_seqs := array(select t.seq from unnest(v_seqs) as t (seq)
        where exists (select from paceline.job j where j.seq = t.seq)
        and not exists (select from paceline.lease s where s.seq = t.seq)
        and not exists (select from paceline.done d where d.seq = t.seq));
    v_part.number := cardinality(v_seqs);
    v_part.wakes := paceline.remove_jobs(p_space, v_seqs) || ('q' || p_queue);
    perform paceline.notify(p_space, v_part.wakes);
    return v_part;
end $$;

create function paceline.clean(p_space int, p_now bigint, p_queue int, p_state int, p_older bigint, p_after bigint,
    p_upto bigint, p_most int) returns paceline.part language plpgsql /* by index */ as $$
declare
    v_begun record;
    v_part paceline.part;
    v_now bigint;
    v_seqs bigint[];
begin
    select * into v_begun from paceline.begin_part(p_queue, p_after, p_upto, p_most);
    v_part := v_begun.part;
    v_seqs := v_begun.seqs;
    v_now := coalesce(p_now, paceline.clock_us());
    select coalesce(array_agg(r.seq), '{}') into v_seqs
        from (select j.seq, paceline.state_of(j, v_now) as state, j.created_at,
            coalesce(p.due_at, j.due_at) as due_at, d.finished_at from unnest(v_seqs) as t (seq)
            cross join lateral (select * from paceline.job o where o.seq = t.seq limit 1) as j
            left join lateral (select o.due_at from paceline.past o where o.seq = t.seq limit 1) as p on true
            left join lateral (select o.finished_at from paceline.done o where o.seq = t.seq limit 1) as d on true) as r
        where r.state = p_state and v_now - case when r.finished_at is not null then r.finished_at
            when r.state = 2 then r.created_at else r.due_at end > p_older;
    v_part.number := cardinality(v_seqs);
    v_part.wakes := paceline.remove_jobs(p_space, v_seqs);
    perform paceline.notify(p_space, v_part.wakes);
    return v_part;
end $$;

-- Remove the queue: jobs, pauses, turns, the log of starts and the counters of limits that cover it alone.
create function paceline.obliterate(p_space int, p_queue int, p_force boolean, out number int, out wakes text[])
language plpgsql /* by index */ as $$
declare
    v_queue paceline.queue;
    v_seqs bigint[];
    v_lease paceline.lease;
    v_keys bigint[];
begin
    select * into v_queue from paceline.queue where id = p_queue for no key update;
    loop
        v_seqs := array(select seq from paceline.job where queue = p_queue);
        perform paceline.fold(p_queue);
        -- One that came meanwhile, and is in a lane by now, goes with the lanes.
        exit when not exists (select seq from paceline.job where queue = p_queue except select unnest(v_seqs));
    end loop;
    wakes := '{}';
    if not p_force and exists (select from paceline.lease where queue = p_queue) then
        perform paceline.fail('not allowed', jsonb_build_object('error', 'not allowed', 'id', v_queue.name, 'state', 3,
            'move', 'obliterate while active jobs exist (stop the workers or use force=True)'));
    end if;
    for v_lease in select * from paceline.lease where queue = p_queue order by seq for update loop
        if v_lease.gate = 1 then perform paceline.abandon(v_lease.meters, v_lease.taken); end if;
        if v_lease.meters is not null and paceline.free(v_lease.meters,
            array_fill(1, array[cardinality(v_lease.meters)]), null) then
            wakes := wakes || '*'::text;
        end if;
    end loop;
    number := cardinality(v_seqs);
    wakes := wakes || paceline.remove_jobs(p_space, v_seqs) || ('q' || p_queue);
    delete from paceline.arrival where queue = p_queue and what > 0;
    delete from paceline.lane where id = any (array(select unnest(lanes) from paceline.grp where queue = p_queue));
    delete from paceline.grp where queue = p_queue;
    delete from paceline.task where queue = p_queue;
    delete from paceline.taskset where queue = p_queue;
    delete from paceline.class where queue = p_queue;
    delete from paceline.start where queue = p_queue;
    update paceline.queue set paused = false where id = p_queue and paused;
    update paceline.queue_state set version = version + 1, virtual_time = 0, filings = 0, waiting = 0, groups = 0,
        class_ids = '{}', class_waiting = '{}', low_class = '{}', low_turn = '{}', low_filed = '{}' where queue = p_queue;
    v_keys := array(select k.id from paceline.lim l join paceline.key k on k.lim = l.id
        where l.space = p_space and l.queues = array[v_queue.name]);
    perform paceline.lock_keys(v_keys);
    perform paceline.forget_starts(t.id) from unnest(v_keys) as t (id);
    perform paceline.notify(p_space, wakes);
end $$;

-- Pause or resume a queue, one of its tasks or one of its groups; what runs goes on.
create function paceline.pause(p_queue int, p_task text, p_group text, p_paused boolean) returns void
language plpgsql /* by index */ as $$
declare
    v_grp paceline.grp;
begin
    perform paceline.lock_and_fold(array[p_queue]);
    if p_group is not null then
        insert into paceline.grp (queue, name, paused) values (p_queue, p_group, p_paused)
            on conflict (queue, name) do update set paused = excluded.paused returning * into v_grp;
        update paceline.lane set version = version + 1, state = case when p_paused then paceline.paused() else paceline.ready() end
            where id = any (v_grp.lanes) and (p_paused or waiting > 0);
        perform paceline.forget_lowest(array[p_queue]);
    end if;
    if p_task is not null then
        insert into paceline.task (queue, name, paused) values (p_queue, p_task, p_paused)
            on conflict (queue, name) do update set paused = excluded.paused;
        perform paceline.reclassify(p_queue);
    end if;
    if p_group is null and p_task is null then
        update paceline.queue set paused = p_paused where id = p_queue;
    end if;
    perform paceline.notify(q.space, array['q' || q.id]) from paceline.queue q where q.id = p_queue;
end $$;
