-- What nobody needs any more is removed.

-- Remove finished jobs after their `keep`, old starts, and what idle groups and limits left; at most so many a call.
create function paceline.prune(p_space int, p_now bigint, p_most int) returns int language plpgsql /* by index */ as $$
declare
    v_now bigint := coalesce(p_now, paceline.clock_us());
    v_seqs bigint[];
    v_queue paceline.queue;
    v_queue_state paceline.queue_state;
    v_idle bigint[];
    v_oldest bigint;
    m paceline.meter;
    v_lim paceline.lim;
begin
    perform paceline.expire(p_space, v_now);
    select coalesce(array_agg(s.seq), '{}') into v_seqs from (
        select d.seq from paceline.done d join paceline.queue q on q.id = d.queue and q.space = p_space
        where d.forget_at < v_now order by d.forget_at limit p_most for update of d skip locked) as s;
    delete from paceline.uniq u using paceline.job j where j.seq = any (v_seqs) and j.uniq is not null
        and u.queue = j.queue and u.key = j.uniq and u.seq = j.seq;
    perform paceline.forget_finished(v_seqs);
    delete from paceline.job where seq = any (v_seqs);
    v_oldest := v_now - paceline.longest_window(p_space);
    for v_queue in select * from paceline.queue where space = p_space order by id for no key update skip locked loop
        -- So many starts of a queue are kept to look at, beyond those that limits still count.
        delete from paceline.start s where s.queue = v_queue.id and s.at < v_oldest and s.at < (
            select o.at from (select t.at, sum(cardinality(t.jobs)) over (order by t.at desc, t.id desc) as n
                from paceline.start t where t.queue = v_queue.id) as o where o.n > 100000 order by o.n limit 1);
        perform paceline.sum_tally(v_queue.id, true);
        -- A group whose turn has passed joins behind everyone, as a new one does.
        v_queue_state := paceline.queue_state_of(v_queue.id);
        v_idle := array(select g.id from paceline.grp g where g.queue = v_queue.id and not g.paused and g.name <> ''
            and not exists (select from unnest(g.lanes) as u (id)
                cross join lateral (select o.waiting, o.turn from paceline.lane o where o.id = u.id
                    order by o.version desc limit 1) as l
                where l.waiting > 0 or l.turn > v_queue_state.virtual_time + paceline.one()));
        delete from paceline.lane where id = any (array(select unnest(g.lanes) from paceline.grp g where g.id = any (v_idle)));
        delete from paceline.grp where id = any (v_idle);
        delete from paceline.group_lock where ctid in (select k.ctid from paceline.group_lock k where k.queue = v_queue.id
            and not exists (select from paceline.grp g where g.queue = k.queue and g.name = k.grp)
            and not exists (select from paceline.delayed d where d.queue = k.queue and d.grp = k.grp)
            for update skip locked);
    end loop;
    for m in select o.* from paceline.lim l join paceline.key k on k.lim = l.id and k.grp <> ''
        cross join lateral (select * from paceline.meter u where u.id = k.id order by u.version desc limit 1
            for no key update skip locked) as o
        where l.space = p_space order by k.id
    loop
        select * into v_lim from paceline.lim where id = m.lim;
        if paceline.forgettable(m, v_now) and paceline.waiting_under(p_space, v_lim, m.grp) = 0 then
            delete from paceline.spent where meter = m.id;
            delete from paceline.meter where id = m.id;
            delete from paceline.key where id = m.id;
        end if;
    end loop;
    delete from paceline.final_record where space = p_space and at < v_now - 60000000;
    delete from paceline.waiter where space = p_space and until < v_now;
    return cardinality(v_seqs);
end $$;

create function paceline.longest_window(p_space int) returns bigint language sql stable as $$
    select greatest(60000000, max(case part ->> 'kind' when 'rate'
            then (part ->> 'per')::bigint + coalesce((part ->> 'guard')::bigint, 0)
        when 'delay' then (part ->> 'gap')::bigint when 'spacing' then (part ->> 'per')::bigint end))
    from (
        select kind from paceline.lim where space = p_space
        union all select o.value from paceline.lim l, jsonb_each(l.overrides) as o where l.space = p_space
        union all select o.kind from paceline.override o join paceline.lim l on l.id = o.lim where l.space = p_space
    ) as k, jsonb_array_elements(k.kind) as part
$$;
