-- Looking without changing: jobs as records, counts, the log of starts, where a job stands; and workers.

-- Jobs by their numbers, in the order asked; those that do not exist are left out.
create function paceline.records(p_space int, p_seqs bigint[], p_now bigint) returns table (
    id text, queue text, task text, data bytea, grp text, state int, priority bigint, place bigint, attempts int,
    attempts_made int, crashes int, returns int, cost bigint, costs text, timeout bigint, backoff text, keep bigint,
    uniq text, uniq_until bigint, created_at bigint, due_at bigint, started_at bigint, finished_at bigint,
    progress double precision, message text, result bytea, error text, logs text[], fence bigint, worker text,
    cancel_asked boolean
) language sql volatile rows 100 /* by index */ as $$
    select j.id, q.name, j.task, j.data, j.grp,
        case when s.seq is not null then 3 when d.seq is not null then d.state
            when coalesce(p.due_at, j.due_at) > p_now then 2 else 1 end,
        j.priority, j.place, j.attempts,
        coalesce(s.attempts_made, d.attempts_made, p.attempts_made, 0), coalesce(s.crashes, d.crashes, p.crashes, 0),
        coalesce(s.returns, d.returns, p.returns, 0), j.cost, j.costs::text, j.timeout, j.backoff, j.keep, j.uniq,
        j.uniq_until, j.created_at, coalesce(s.due_at, d.due_at, p.due_at, j.due_at),
        coalesce(s.started_at, d.started_at, p.started_at), d.finished_at,
        coalesce(s.progress, d.progress, p.progress, 0), coalesce(s.message, d.message, p.message), d.result,
        coalesce(s.error, d.error, p.error), coalesce(s.logs, d.logs, p.logs),
        coalesce(s.fence, d.fence, p.fence, 0), s.worker, coalesce(s.cancel_asked, d.cancel_asked, false)
    from unnest(p_seqs) with ordinality as t (seq, place)
    cross join lateral (select * from paceline.job o where o.seq = t.seq and o.space = p_space limit 1) as j
    cross join lateral (select * from paceline.queue o where o.id = j.queue limit 1) as q
    left join lateral (select * from paceline.lease o where o.seq = t.seq limit 1) as s on true
    left join lateral (select * from paceline.done o where o.seq = t.seq and s.seq is null limit 1) as d on true
    left join lateral (select * from paceline.past o where o.seq = t.seq and s.seq is null and d.seq is null limit 1)
        as p on true order by t.place
$$;

create function paceline.seqs_of(p_space int, p_ids text[]) returns bigint[] language sql volatile /* by index */ as $$
    select coalesce(array_agg(j.seq order by t.place), '{}') from unnest(p_ids) with ordinality as t (id, place)
        cross join lateral (select o.seq from paceline.job o where o.id = t.id and o.space = p_space limit 1) as j
$$;

-- A page of a queue's jobs. One with a state first reads a piece of all jobs, because nearby ones are often like it, and
-- then what has that state.
create function paceline.find(p_space int, p_now bigint, p_queue text, p_state int, p_task text, p_group text,
    p_limit int, p_after text, p_newest_first boolean) returns bigint[] language plpgsql /* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_queue int;
    v_after bigint := case when p_newest_first then 9223372036854775807 else 0 end;
    v_most int := case when p_state is not null then 10 * p_limit end;
    v_seqs bigint[];
begin
    select id into v_queue from paceline.queue where space = p_space and name = p_queue;
    if p_after is not null then
        select seq into v_after from paceline.job where space = p_space and id = p_after and queue = v_queue;
        if not found then
            perform paceline.fail('not found', jsonb_build_object('error', 'not found', 'id', p_after));
        end if;
    end if;
    if p_state > 3 then
        return paceline.find_finished(v_queue, p_state, p_task, p_group, p_limit, v_after, p_newest_first);
    elsif p_newest_first then
        select coalesce(array_agg(s.seq order by s.seq desc), '{}') into v_seqs from (
            select j.seq from (select * from paceline.job o where o.queue = v_queue and o.seq < v_after
                order by o.seq desc limit v_most) as j
            where (p_task is null or j.task = p_task) and (p_group is null or j.grp = p_group)
                and (p_state is null or paceline.state_of(j, v_now) = p_state)
            order by j.seq desc limit p_limit) as s;
    else
        select coalesce(array_agg(s.seq order by s.seq), '{}') into v_seqs from (
            select j.seq from (select * from paceline.job o where o.queue = v_queue and o.seq > v_after
                order by o.seq limit v_most) as j
            where (p_task is null or j.task = p_task) and (p_group is null or j.grp = p_group)
                and (p_state is null or paceline.state_of(j, v_now) = p_state)
            order by j.seq limit p_limit) as s;
    end if;
    if p_state is null or cardinality(v_seqs) = p_limit then return v_seqs; end if;
    return (select coalesce(array_agg(s.seq order by s.place), '{}') from (
        select u.seq, u.place
        from (select o.seq, case when p_newest_first then -o.seq else o.seq end as place
            from paceline.unfinished(v_queue, p_state, p_group) as o (seq)
            where case when p_newest_first then o.seq < v_after else o.seq > v_after end order by 2) as u
        cross join lateral (select * from paceline.job o where o.seq = u.seq and o.queue = v_queue limit 1) as j
        where (p_task is null or j.task = p_task) and (p_group is null or j.grp = p_group)
            and paceline.state_of(j, v_now) = p_state
        order by u.place limit p_limit) as s);
end $$;

-- A page of finished jobs, by the index that has them in order. Written as a range over its columns: with equal ones, a plan
-- may walk through the jobs of all states instead.
create function paceline.find_finished(p_queue int, p_state int, p_task text, p_group text, p_limit int, p_after bigint,
    p_newest_first boolean) returns bigint[] language plpgsql as $$
begin
    if p_newest_first then
        return (select coalesce(array_agg(s.seq order by s.seq desc), '{}') from (
            select d.seq from paceline.done d
            cross join lateral (select * from paceline.job o where o.seq = d.seq limit 1) as j
            where (d.queue, d.state, d.seq) < (p_queue, p_state, p_after) and (d.queue, d.state) >= (p_queue, p_state)
                and (p_task is null or j.task = p_task) and (p_group is null or j.grp = p_group)
            order by d.queue desc, d.state desc, d.seq desc limit p_limit) as s);
    end if;
    return (select coalesce(array_agg(s.seq order by s.seq), '{}') from (
        select d.seq from paceline.done d
        cross join lateral (select * from paceline.job o where o.seq = d.seq limit 1) as j
        where (d.queue, d.state, d.seq) > (p_queue, p_state, p_after) and (d.queue, d.state) <= (p_queue, p_state)
            and (p_task is null or j.task = p_task) and (p_group is null or j.grp = p_group)
        order by d.queue, d.state, d.seq limit p_limit) as s);
end $$;

-- Jobs that are active, or may be waiting or delayed: a delayed one waits once it is due.
create function paceline.unfinished(p_queue int, p_state int, p_group text) returns setof bigint
language plpgsql as $$
begin
    if p_state = 3 then
        return query select s.seq from paceline.lease s where s.queue = p_queue;
        return;
    end if;
    return query select abs(d.place) from paceline.delayed d where d.queue = p_queue;
    if p_state = 1 then
        return query select abs(w.place) from (
            select u.lane from paceline.grp g cross join lateral unnest(g.lanes) as u (lane)
                where g.queue = p_queue and (p_group is null or g.name = p_group)
            union select a.lane from paceline.arrival a where a.queue = p_queue and a.what = paceline.jobs_came()) as l
            cross join lateral (select o.place from paceline.wait o where o.lane = l.lane) as w;
    end if;
end $$;

create function paceline.starts(p_space int, p_queue text, p_since bigint)
returns table (job text, at bigint, task text, grp text, cost bigint, costs text) language sql stable /* by index */ as $$
    select t.job, s.at, t.task, t.grp, t.cost, s.cost_maps[t.place]::text
    from paceline.queue q join paceline.start s on s.queue = q.id and (p_since is null or s.at >= p_since),
        unnest(s.jobs, s.tasks, s.grps, s.costs) with ordinality as t (job, task, grp, cost, place)
    where q.space = p_space and q.name = p_queue order by s.at, s.id, t.place
$$;

-- Everything that decides when a job may start; the states of its keys are for the Python kernel to walk through.
create function paceline.standing(p_space int, p_now bigint, p_id text) returns jsonb language plpgsql /* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_job paceline.job;
    v_queue paceline.queue;
    v_waits boolean;
    v_keys jsonb := '[]';
    v_lim paceline.lim;
    v_cost bigint;
    v_group text;
    v_due bigint;
    v_class int;
    v_ahead bigint := 0;
begin
    select * into v_job from paceline.job where space = p_space and id = p_id;
    if not found then
        perform paceline.fail('not found', jsonb_build_object('error', 'not found', 'id', p_id));
    end if;
    select * into v_queue from paceline.queue where id = v_job.queue;
    v_waits := paceline.state_of(v_job, v_now) < 3;
    if v_waits then
        for v_lim in select l.* from unnest(paceline.meeting(p_space, v_queue.name, v_job.task)) with ordinality
            as t (id, place) join paceline.lim l on l.id = t.id
            where not l.by_group or v_job.grp is not null order by t.place
        loop
            v_cost := paceline.cost_under(v_job.cost, v_job.costs, v_lim.name);
            v_group := case when v_lim.by_group then v_job.grp end;
            v_keys := v_keys || (paceline.usage_of(p_space, v_lim, v_group, v_cost, v_now)
                || jsonb_build_object('state', paceline.dump(v_lim.id, coalesce(v_group, ''))));
        end loop;
        select coalesce(p.due_at, v_job.due_at) into v_due from (select 1) as one
            left join paceline.past p on p.seq = v_job.seq;
        if v_due <= v_now then
            v_class := paceline.class_to_be(v_queue, v_job.task);
            select count(*) into v_ahead from paceline.wait w join paceline.job j on j.seq = abs(w.place)
                where w.lane in (select g.lanes[array_position(g.classes, v_class)] from paceline.grp g
                    where g.queue = v_job.queue and g.name = coalesce(v_job.grp, '')
                    union select a.lane from (select distinct o.lane, o.task from paceline.arrival o
                        where o.queue = v_job.queue and o.what = 0 and o.grp is not distinct from v_job.grp) as a
                    where coalesce((select k.class = v_class from paceline.task k
                        where k.queue = v_job.queue and k.name = a.task), paceline.same_class(v_queue, a.task, v_job.task)))
                and (w.priority, w.place) < (v_job.priority, v_job.place);
        end if;
    end if;
    return jsonb_build_object('now', v_now, 'expired', paceline.has_expired(p_space, v_now), 'waits', v_waits, 'keys', v_keys, 'ahead', v_ahead,
        'paused_queue', v_queue.paused,
        'paused_task', exists (select from paceline.task where queue = v_queue.id and name = v_job.task and paused),
        'paused_group', exists (select from paceline.grp where queue = v_queue.id and name = v_job.grp and paused),
        'known', not exists (select from paceline.worker w where w.space = p_space and v_queue.name = any (w.queues))
            or exists (select from paceline.worker w where w.space = p_space and v_queue.name = any (w.queues)
                and (w.tasks is null or v_job.task = any (w.tasks))),
        'groups', paceline.groups_waiting(v_queue.id),
        'queue', v_queue.name);
end $$;

-- The class of a task. One that no claim has met yet has none: its jobs will stand behind those of its like, if any.
create function paceline.class_to_be(p_queue paceline.queue, p_task text) returns int language plpgsql stable as $$
declare
    v_task paceline.task;
begin
    select * into v_task from paceline.task where queue = p_queue.id and name = p_task;
    return coalesce(v_task.class, (select k.id from paceline.class k where k.queue = p_queue.id
        and k.limits = paceline.meeting(p_queue.space, p_queue.name, p_task)
        and k.paused = coalesce(v_task.paused, false) and k.known_by = paceline.known_by(p_queue.id, p_task)));
end $$;

-- True when two tasks of a queue are in one class, or will be.
create function paceline.same_class(p_queue paceline.queue, p_one text, p_other text) returns boolean
language sql volatile as $$
    select p_one = p_other or (
        paceline.meeting(p_queue.space, p_queue.name, p_one) = paceline.meeting(p_queue.space, p_queue.name, p_other)
        and paceline.known_by(p_queue.id, p_one) = paceline.known_by(p_queue.id, p_other)
        and coalesce((select paused from paceline.task where queue = p_queue.id and name = p_one), false)
            = coalesce((select paused from paceline.task where queue = p_queue.id and name = p_other), false))
$$;

-- The states of the parts of a key, as `Part.dump` writes them; null for a key that counted nothing.
create function paceline.dump(p_lim int, p_grp text) returns jsonb language plpgsql volatile as $$
declare
    m paceline.meter;
    v_states jsonb := '[]';
    b int;
begin
    select * into m from paceline.keys_of(array[p_lim], p_grp);
    if not found then return null; end if;
    for i in 0 .. cardinality(m.parts) / 8 - 1 loop
        b := i * 8;
        continue when m.parts[b + 1] = 5;
        v_states := v_states || jsonb_build_array(case m.parts[b + 1]
            when 1 then jsonb_build_array(m.parts[b + 4], m.parts[b + 5], m.parts[b + 6]) || coalesce((
                select jsonb_agg(n order by s.cum, k) from paceline.spent s,
                    unnest(array[s.at, s.cum]) with ordinality as u (n, k)
                where s.meter = m.id and s.part = i and s.cum > m.parts[b + 5]), '[]')
            when 2 then '[]'::jsonb
            else jsonb_build_array(m.parts[b + 4], m.parts[b + 5], m.parts[b + 6]) end);
    end loop;
    return v_states;
end $$;

create type paceline.extended as (lost text[], cancel text[]);

-- Prolong leases of jobs and permits, and say that the worker lives.
create function paceline.extend(p_space int, p_now bigint, p_worker text, p_ids text[], p_fences bigint[],
    p_lease bigint) returns paceline.extended language plpgsql
/* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_answer paceline.extended;
    v_shorter int[];
begin
    perform paceline.expire(p_space, v_now);
    -- A lease that gets shorter may end before all others of its queue.
    v_shorter := array(select distinct s.queue from paceline.job j join paceline.lease s on s.seq = j.seq
        where j.space = p_space and j.id = any (p_ids) and s.until > v_now + p_lease order by 1);
    if v_shorter <> '{}' then
        perform from paceline.queue where id = any (v_shorter) order by id for no key update;
        update paceline.queue_state set version = version + 1, lease_from = least(lease_from, v_now + p_lease)
            where queue = any (v_shorter);
    end if;
    update paceline.worker set seen_at = v_now where space = p_space and id = p_worker;
    perform from paceline.job j join paceline.lease s on s.seq = j.seq
        where j.space = p_space and j.id = any (p_ids) order by s.seq for update of s;
    v_now := coalesce(p_now, paceline.clock_us());
    with held as (
        select t.id, t.fence, t.place, j.seq from unnest(p_ids, p_fences) with ordinality as t (id, fence, place)
        left join paceline.job j on j.space = p_space and j.id = t.id
    ), jobs as (
        update paceline.lease s set until = v_now + p_lease from (select distinct seq, fence from held) as h
            where s.seq = h.seq and s.fence = h.fence returning s.seq, s.fence, s.cancel_asked
    ), permits as (
        update paceline.permit p set until = v_now + p_lease from (
            select distinct id from held where seq is null and fence = 0) as h
            where p.space = p_space and p.id = h.id returning p.id
    )
    select coalesce(array_agg(h.id order by h.place) filter (where j.seq is null and p.id is null), '{}'),
        coalesce(array_agg(h.id order by h.place) filter (where j.cancel_asked), '{}')
        into v_answer.lost, v_answer.cancel
        from held h left join jobs j on j.seq = h.seq and j.fence = h.fence left join permits p on p.id = h.id
            and h.seq is null and h.fence = 0;
    return v_answer;
end $$;

-- The end of a log: its last 1000 lines, and of these what fits 64 KiB.
create function paceline.last_lines(p_lines text[]) returns text[] language sql immutable as $$
    select case when cardinality(p_lines) <= 1000 and octet_length(array_to_string(p_lines, '')) <= 65536 then p_lines
        else (
            select coalesce(array_agg(l.line order by l.place), '{}') from (
                select u.line, u.place, sum(octet_length(u.line)) over (order by u.place desc) as size
                from unnest(p_lines) with ordinality as u (line, place) where u.place > cardinality(p_lines) - 1000) as l
            where l.size <= 65536) end
$$;

-- Progress and log lines of runs that hold their fence; returns the ids of the others.
create function paceline.note(p_space int, p_ids text[], p_fences bigint[], p_progress double precision[],
    p_messages text[], p_logs text[]) returns text[] language plpgsql /* by index */ as $$
declare
    v_lost text[] := '{}';
begin
    for i in 1 .. cardinality(p_ids) loop
        update paceline.lease s set
            progress = coalesce(p_progress[i], s.progress),
            message = case when p_progress[i] is null then s.message else p_messages[i] end,
            logs = case when p_logs[i] is null then s.logs else paceline.last_lines(coalesce(s.logs, '{}') || p_logs[i]) end
            from paceline.job j where j.space = p_space and j.id = p_ids[i] and s.seq = j.seq and s.fence = p_fences[i];
        if not found then v_lost := v_lost || p_ids[i]; end if;
    end loop;
    return v_lost;
end $$;

create function paceline.register(p_space int, p_now bigint, p_id text, p_queues text[], p_tasks text[], p_lags jsonb)
returns void language sql as $$
    insert into paceline.worker (space, id, queues, tasks, seen_at, lags)
        values (p_space, p_id, p_queues, p_tasks, coalesce(p_now, paceline.clock_us()), p_lags)
        on conflict (space, id) do update set queues = excluded.queues, tasks = excluded.tasks,
            seen_at = excluded.seen_at, lags = excluded.lags
$$;

create function paceline.unregister(p_space int, p_id text) returns void language plpgsql as $$
begin
    delete from paceline.worker where space = p_space and id = p_id;
    delete from paceline.last_claim where space = p_space and worker = p_id;
end $$;

-- Somebody waits for the end of a job; gives the time.
create function paceline.wait_for(p_space int, p_now bigint, p_id text, p_token text, p_timeout bigint) returns bigint
language plpgsql as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
begin
    -- Under a lock of the run, so that whoever ends it sees this, or this comes after the end.
    perform from paceline.lease s where s.seq = (select j.seq from paceline.job j where j.id = p_id and j.space = p_space)
        for key share;
    -- Who waits without end says so again at every look, and is forgotten a day after the last one.
    insert into paceline.waiter (space, id, token, until)
        values (p_space, p_id, p_token, v_now + coalesce(p_timeout, 86400000000) + 60000000);
    return v_now;
end $$;

create function paceline.stop_waiting(p_space int, p_id text, p_token text) returns void language sql as $$
    delete from paceline.waiter where space = p_space and id = p_id and token = p_token
$$;

-- What became of a job that was not kept.
create function paceline.final_record_of(p_space int, p_id text) returns table (
    id text, queue text, task text, data bytea, grp text, state int, priority bigint, place bigint, attempts int,
    attempts_made int, crashes int, returns int, cost bigint, costs text, timeout bigint, backoff text, keep bigint,
    uniq text, uniq_until bigint, created_at bigint, due_at bigint, started_at bigint, finished_at bigint,
    progress double precision, message text, result bytea, error text, logs text[], fence bigint, worker text,
    cancel_asked boolean
) language sql stable as $$
    select r.id, r.queue, r.task, w.data, r.grp, r.state, r.priority, r.place, r.attempts, r.attempts_made, r.crashes,
        r.returns, r.cost, r.costs, r.timeout, r.backoff, r.keep, r.uniq, r.uniq_until, r.created_at, r.due_at,
        r.started_at, r.finished_at, r.progress, r.message, w.result, r.error, r.logs, r.fence, r.worker, r.cancel_asked
    from paceline.final_record w, jsonb_to_record(w.record) as r (
        id text, queue text, task text, grp text, state int, priority bigint, place bigint, attempts int,
        attempts_made int, crashes int, returns int, cost bigint, costs text, timeout bigint, backoff text, keep bigint,
        uniq text, uniq_until bigint, created_at bigint, due_at bigint, started_at bigint, finished_at bigint,
        progress double precision, message text, error text, logs text[], fence bigint, worker text,
        cancel_asked boolean)
    where w.space = p_space and w.id = p_id
$$;
