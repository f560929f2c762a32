-- A connection makes its plans when it first needs them, most of them after the stamp of its first claim, and handlers
-- would begin late by that. So claims of several sorts, late starts and ends happen once in a namespace that nobody sees,
-- and are undone; numbers that sequences gave are not. Gives the reason for which they were undone: 'undone' is as it should be.
create function paceline.warm_up() returns text language plpgsql /* by index */ as $$
declare
    v_space int;
    v_queue int;
    v_limit jsonb := '{"queues": null, "tasks": null, "overrides": {}, "backoff": null, "kind":
        [{"kind": "rate", "max": 9, "per": 9000000, "guard": 10000}]}';
    v_one record;
    v_two record;
begin
    v_space := paceline.space_of('warming up ' || pg_backend_pid() || ' ' || clock_timestamp());
    v_queue := paceline.queue_of(v_space, 'queue');
    perform paceline.declare_limit(v_space, v_limit || '{"name": "all", "by_group": false}');
    -- One lane; then turns of groups, with the ends of what ran.
    perform paceline.warm_add(v_space, v_queue, array['a', 'b'], null);
    v_one := paceline.warm_claim(v_space, v_queue, '{}', '{}');
    perform paceline.decide_again(v_space, null, v_one.ids, v_one.fences, false);
    perform paceline.begun(v_space, null, v_one.ids[1:1], v_one.fences[1:1], array[0]::bigint[]);
    perform paceline.declare_limit(v_space, v_limit || '{"name": "group", "by_group": true}');
    perform paceline.reclassify_all(v_space);
    perform paceline.warm_add(v_space, v_queue, array['c', 'd', 'e'], array['g', 'h', 'h']);
    v_two := paceline.warm_claim(v_space, v_queue, v_one.ids, v_one.fences);
    -- Some begin without having been asked about, one is handed back.
    perform paceline.begun(v_space, null, v_two.ids[1:1], v_two.fences[1:1], array[1]::bigint[]);
    perform paceline.hold_key(v_space, '{"limit": "group", "group": "h", "for": 9000000}', paceline.clock_us(), null);
    perform paceline.decide_again(v_space, null, v_two.ids, v_two.fences, false);
    -- One after the other, because of a cost.
    update paceline.wait set big = true where lane = any (array(
        select unnest(g.lanes) from paceline.grp g where g.queue = v_queue));
    perform paceline.warm_claim(v_space, v_queue, v_two.ids, v_two.fences);
    raise exception 'undone';
exception when others then
    return sqlerrm;
end $$;

create function paceline.warm_claim(p_space int, p_queue int, p_ids text[], p_fences bigint[], out ids text[],
    out fences bigint[]) language sql as $$
    select c.ids, c.fences from paceline.claim_jobs(p_space, null, array[p_queue], 9, 'worker', 60000000, p_ids::text, null,
        '{}', null, null, p_ids, p_fences, array_fill('completed'::text, array[cardinality(p_ids)]),
        array_fill(null::bytea, array[cardinality(p_ids)]), array_fill(null::text, array[cardinality(p_ids)]),
        array_fill(null::bigint, array[cardinality(p_ids)]), array_fill(null::bigint, array[cardinality(p_ids)]),
        array_fill(false, array[cardinality(p_ids)]), array_fill(null::jsonb, array[cardinality(p_ids)]), false) as c
$$;

create function paceline.warm_add(p_space int, p_queue int, p_ids text[], p_grps text[]) returns void language sql as $$
    select paceline.insert_jobs(p_space, null, p_ids, array[p_queue], array['task'],
        array_fill('x'::bytea, array[cardinality(p_ids)]), p_grps, null, array[0]::bigint[], null, array[0]::bigint[],
        array[false], array[1], null, null, array[1]::bigint[], null, null, null, null, false)
$$;
