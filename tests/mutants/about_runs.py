"""Rules about adding jobs, leases, fences, the ends of runs, wake-ups and when to ask again."""

from __future__ import annotations

from .rule import Edit, Planted, Rule, lua, sql

GIVEN_AGAIN = "test_a_claim_asked_again_gives_the_same_jobs_and_starts_nothing"
NOT_COUNTED = "test_a_job_that_is_handed_back_uses_no_attempt"

RULES = [
    Rule(
        "a claim starts what waits: with this one planted nothing works, so planted bugs do run",
        ("test_jobs_start_in_the_order_they_were_added",),
        python=Edit(
            "stores/steps/claim.py",
            "    waiting = list(queues)\n    while waiting",
            "    waiting = []\n    while waiting",
        ),
        sql=sql(
            "choose",
            "        t := paceline.load_turns(c, v_left * v_wide);",
            "        perform 1 / 0;\n        t := paceline.load_turns(c, v_left * v_wide);",
        ),
        lua=lua("claim", "  start.take_turns(asked)\n", ""),
    ),
    # adding
    Rule(
        "a group takes exactly its size",
        ("test_a_group_takes_exactly_its_size",),
        sql=sql("insert", "if v_size >= e.size then", "if v_size > e.size then"),
        lua=lua("insert", "if max_size and size >= max_size then", "if max_size and size > max_size then"),
    ),
    Rule(
        "the jobs of one bulk count for the size of their group",
        ("test_a_bulk_that_does_not_fit_is_refused_as_a_whole",),
        python=Planted("group_size_counted_before_the_bulk"),
        sql=sql("insert", "v_size + 1);", "v_size);"),
        lua=lua("insert", "sizes[name] = size + 1", "sizes[name] = size"),
    ),
    Rule(
        "delayed jobs count for the size of their group",
        ("test_delayed_jobs_count",),
        sql=sql(
            "insert", "        + (select count(*) from paceline.delayed where queue = p_queue and grp = p_grp)\n", ""
        ),
        lua=lua(
            "lines",
            "  group.size = group.size + 1\n",
            "  group.size = group.size + (row.run[DUE_AT] > step.now and 0 or 1)\n",
        ),
    ),
    Rule(
        "a unique key counts until exactly the end of its time",
        ("test_a_key_counts_until_exactly_the_end_of_its_time",),
        sql=sql("insert", "and key = p_key and until <= p_now;", "and key = p_key and until < p_now;"),
        lua=lua("rows", "not ttl or step.now < created_at + ttl", "not ttl or step.now <= created_at + ttl"),
    ),
    Rule(
        "a finished job frees its unique key",
        ("test_a_finished_job_frees_its_key",),
        sql=sql("finish", "    if p_uniqs then\n", "    if false then\n"),
        lua=lua(
            "runs",
            "  counts[final] = counts[final] + 1\n  if run[UNIQUE] then",
            "  counts[final] = counts[final] + 1\n  if false then",
        ),
    ),
    Rule(
        "the end of an older job does not free the unique key of a newer one",
        ("test_the_end_of_an_older_job_does_not_free_the_key_of_a_newer_one",),
        sql=sql("finish", "j.uniq = u.key and j.seq = u.seq where", "j.uniq = u.key where"),
        lua=lua(
            "runs",
            "    if call('HGET', key, run[UNIQUE]) == row.id then\n"
            "      call('HDEL', key, run[UNIQUE])\n    end\n  end\n  wakes.finished(row)",
            "    call('HDEL', key, run[UNIQUE])\n  end\n  wakes.finished(row)",
        ),
    ),
    Rule(
        "an id twice in one bulk is one job",
        (
            "test_an_id_twice_in_one_bulk_gives_one_job",
            "test_an_id_twice_in_one_bulk_that_joins_others_gives_one_job",
        ),
        lua=lua("join", "if found[place] or seen[id] then", "if found[place] then"),
    ),
    Rule(
        "a delayed job starts exactly when it is due",
        ("test_a_delayed_job_starts_exactly_when_it_is_due",),
        sql=sql(
            "fold", "where o.queue = p_queue and o.due_at <= p_now\n", "where o.queue = p_queue and o.due_at < p_now\n"
        ),
        lua=lua(
            "lines",
            "delayed_key(line), '-inf', format('%.0f', step.now), 'LIMIT'",
            "delayed_key(line), '-inf', format('(%.0f', step.now), 'LIMIT'",
        ),
    ),
    Rule(
        "a job that comes while the lanes of its task change is counted once",
        ("test_what_comes_while_tasks_change_their_limits_is_counted_once",),
        sql=sql("classes", "and a.lane = v_lane.id and a.task = p_task)", "and false)"),
    ),
    Rule(
        "what is done to a whole queue leaves alone what comes meanwhile",
        ("test_what_comes_while_a_queue_is_emptied_stays_and_starts",),
        sql=sql(
            "manage",
            "    seqs := paceline.part_of(p_queue, p_after, part.upto, p_most);\n"
            "    part.last := seqs[p_most];\n"
            "    perform paceline.fold(p_queue);\n",
            "    perform paceline.fold(p_queue);\n"
            "    seqs := paceline.part_of(p_queue, p_after, 4611686018427387904, p_most);\n"
            "    part.last := seqs[p_most];\n",
        ),
    ),
    # leases and fences
    Rule(
        "a job is given again exactly when its lease ends",
        ("test_a_job_is_given_again_exactly_when_its_lease_ends",),
        python=Planted("lease_taken_back_too_early"),
        sql=sql("claim", "if v_ahead.lease_end <= c.now then", "if v_ahead.lease_end < c.now then"),
        lua=lua(
            "runs",
            "'leases', '-inf', format('%.0f', step.now), 'LIMIT'",
            "'leases', '-inf', format('(%.0f', step.now), 'LIMIT'",
        ),
    ),
    Rule(
        "leases end where only another queue is served",
        ("test_a_slot_comes_back_when_only_another_queue_is_served", "test_all_jobs_of_a_dead_worker_come_back"),
        sql=sql(
            "take_back",
            "from paceline.queue q where q.space = p_space and exists (",
            "from paceline.queue q where q.space = p_space and q.name = 'nobody' and exists (",
        ),
        lua=lua(
            "runs",
            "    if sub(name, 9, 9) == 'j' then\n      local row = step.rows[id]",
            "    if sub(name, 9, 9) == 'j' and step.rows[id].queue == step.args.queues[1] then\n"
            "      local row = step.rows[id]",
        ),
    ),
    Rule(
        "whoever lost the lease completes nothing",
        ("test_whoever_lost_the_lease_changes_nothing", "test_another_fence_is_refused"),
        python=Edit("stores/steps/finish.py", "not ACTIVE or row.fence != end.fence:", "not ACTIVE:"),
        sql=sql(
            "finish",
            "where o.seq = n.seq and o.fence = n.fence limit 1 for update) as s",
            "where o.seq = n.seq limit 1 for update) as s",
        ),
        lua=lua("complete", "run[STATE] ~= ACTIVE or run[FENCE] ~= finish.fence then", "run[STATE] ~= ACTIVE then"),
    ),
    Rule(
        "whoever lost the lease hands nothing back",
        (
            "test_whoever_lost_the_lease_changes_nothing",
            "test_another_fence_is_refused",
            "test_a_stale_fence_is_refused_for_every_outcome",
        ),
        python=Edit("stores/steps/finish.py", "not ACTIVE or row.fence != end.fence:", "not ACTIVE:"),
        sql=sql(
            "finish",
            "o.seq = n.seq and o.fence = n.fence limit 1 for update) as s",
            "o.seq = n.seq and (o.fence = n.fence or p_outcomes[n.place] <> 'completed') limit 1 for update) as s",
        ),
        lua=lua(
            "runs", "row.run[STATE] ~= ACTIVE or row.run[FENCE] ~= finish.fence then", "row.run[STATE] ~= ACTIVE then"
        ),
    ),
    Rule(
        "whoever lost the lease prolongs nothing",
        (
            "test_a_worker_that_lost_a_lease_learns_it_and_takes_nothing_from_the_owner",
            "test_a_stranger_who_has_no_fence_extends_nothing",
        ),
        lua=lua("extend", "if row.run[STATE] ~= 3 or row.run[FENCE] ~= fence then", "if row.run[STATE] ~= 3 then"),
    ),
    Rule(
        "a claim whose answer was lost starts nothing again",
        (GIVEN_AGAIN,),
        python=Planted("lost_claim_is_started_again"),
        sql=sql("claim", "if p_claim_id <> '' and c.claim_id = p_claim_id then return", "if false then return"),
        lua=lua("claim", "if not last or last[1] ~= claim_id then", "if true then"),
    ),
    Rule(
        "a claim asked again leaves out what was started anew",
        ("test_a_claim_asked_again_leaves_out_a_job_that_was_started_anew",),
        sql=sql(
            "claim",
            "and o.worker = c.worker\n        and o.fence between c.first_fence and c.last_fence order",
            "and o.fence >= c.first_fence order",
        ),
        lua=lua(
            "claim",
            "if row and row.run[STATE] == ACTIVE and row.run[FENCE] == fence then",
            "if row and row.run[STATE] == ACTIVE then",
        ),
    ),
    Rule(
        "time stands still rather than go back",
        (
            "test_time_stands_still_for_the_store_rather_than_go_back",
            "test_time_stands_still_where_nothing_is_limited",
        ),
        python=Planted("clock_that_goes_back"),
        sql=sql(
            "claim",
            "greatest(coalesce(p_now, paceline.clock_us()), q.seen_at),",
            "coalesce(p_now, paceline.clock_us()),",
        ),
        lua=lua("step", "step.now = head.latest", "step.now = now"),
    ),
    Rule(
        "many claimers start exactly what a rate allows",
        ("test_48_claimers_start_exactly_what_a_rate_allows",),
        python=Planted("claim_without_a_lock"),
    ),
    # ends of runs
    Rule(
        "a refusal from outside uses no attempt",
        (NOT_COUNTED,),
        python=Planted("attempt_used_by_a_refusal_from_outside"),
        sql=sql(
            "finish",
            "o.attempts_made - (e.outcome <> 'retry')::int",
            "o.attempts_made - (e.outcome not in ('retry', 'returned'))::int",
        ),
        lua=lua("runs", "  if outcome ~= 'retry' then\n", "  if outcome ~= 'retry' and outcome ~= 'returned' then\n"),
    ),
    Rule(
        "a crash uses no attempt",
        ("test_the_end_of_a_lease_is_a_crash_and_uses_no_attempt",),
        python=Planted("crash_counts_as_an_attempt"),
        sql=sql(
            "finish",
            "o.attempts_made - (e.outcome <> 'retry')::int",
            "o.attempts_made - (e.outcome not in ('retry', 'crashed'))::int",
        ),
        lua=lua("runs", "  if outcome ~= 'retry' then\n", "  if outcome ~= 'retry' and outcome ~= 'crashed' then\n"),
    ),
    Rule(
        "the third crash fails the job",
        ("test_a_job_that_crashed_three_times_fails", "test_a_job_that_lost_its_worker_three_times_fails"),
        sql=sql(
            "finish",
            "p_outcome = 'crashed' and p_crashes >= 2 then 5",
            "p_outcome = 'crashed' and p_crashes > 2 then 5",
        ),
        lua=lua("runs", "if row.run[CRASHES] >= MAX_CRASHES then", "if row.run[CRASHES] > MAX_CRASHES then"),
    ),
    Rule(
        "a job whose cancel was asked ends cancelled",
        ("test_a_job_whose_cancel_was_asked_ends_cancelled",),
        sql=sql(
            "finish",
            "case when p_cancel_asked or p_outcome = 'cancelled' then 6",
            "case when p_outcome = 'cancelled' then 6",
        ),
        lua=lua("complete", "return not run[CANCEL_ASKED] and not", "return not"),
    ),
    Rule(
        "a retry that waits for its limits is due at their latest next start",
        ("test_a_retry_when_open_is_due_at_the_latest_next_start_of_its_limits",),
        sql=sql("finish", "v_answer.instant := paceline.opens_for(v_lease, p_now);", "v_answer.instant := p_now;"),
        lua=lua("runs", "  if finish.when_open then\n", "  if false then\n"),
    ),
    Rule(
        "every end frees the slots of its run, also when many end together",
        ("test_every_outcome_frees_the_slot_once", "test_many_ends_in_one_step_free_every_slot"),
        sql=sql(
            "finish",
            "array_fill(cardinality(p_ends), array[cardinality(p_same)])",
            "array_fill(1, array[cardinality(p_same)])",
        ),
        lua=lua("complete", "  if run[KEYS] then\n    runs.free", "  if run[KEYS] and #id > 4 then\n    runs.free"),
    ),
    Rule(
        "a job that is not kept is gone when it ends",
        ("test_a_job_that_is_not_kept_is_gone_when_it_ends",),
        sql=sql("finish", "        delete from paceline.job where seq = any (p_gone);\n", ""),
        lua=lua("complete", "  if keep == 0 then\n", "  if keep == -1 then\n"),
    ),
    # asking again and waking up
    Rule(
        "a refused claim names the end of the lease in its way",
        ("test_only_an_end_opens_a_concurrency_so_the_lease_end_is_the_next_instant",),
        sql=sql("claim", "    c.again_at := v_ahead.lease_end;\n", "    c.again_at := paceline.never();\n"),
        lua=lua(
            "claim", "local at = min(runs.next_lease_end(), step.head.next_expiry)", "local at = step.head.next_expiry"
        ),
    ),
    Rule(
        "a claim that still has slots names the next delay",
        (
            "test_a_claim_that_still_has_slots_names_the_next_delay",
            "test_the_first_of_several_delays_says_when_to_ask_again",
        ),
        sql=sql("claim", "when not c.limited then c.next_due end);", "when not c.limited then null end);"),
        lua=lua("claim", "  local at = lines.next_due(line)\n", "  local at = NEVER\n"),
    ),
    Rule(
        "a claim stops at the room of its worker",
        ("test_a_claim_stops_at_the_room_of_the_worker",),
        sql=sql("choose", "            c.room := c.room - 1;\n", ""),
        lua=lua("start", "this.room = this.room - rows.cost_under(cost, '')", "this.room = this.room + 0"),
    ),
    Rule(
        "a slot that somebody waits for wakes when it is free",
        (
            "test_a_slot_that_somebody_waits_for_wakes_when_it_is_free",
            "test_a_slot_that_a_permit_waits_for_wakes_when_a_job_ends",
        ),
        sql=sql("finish", "bool_or(m.awaited or m.parked <> '{}')", "bool_or(m.parked <> '{}')"),
        lua=lua("runs", "    for queue in pairs(meter.awaited) do\n      wakes.queue(queue)\n    end\n", ""),
    ),
    Rule(
        "a slot of a group that is freed in another queue wakes",
        ("test_a_slot_of_a_group_that_is_freed_in_another_queue_wakes",),
        sql=sql("finish", "bool_or(m.awaited or m.parked <> '{}')", "bool_or(m.awaited)"),
        lua=lua("runs", "      wakes.queue(lane.line.name)\n", ""),
    ),
    Rule(
        "a job that arrives wakes, also when others wait before it",
        ("test_a_job_that_arrives_wakes", "test_a_job_that_joins_others_wakes"),
        lua=lua("join", "  wakes.queue(line.name)\n", ""),
    ),
    Rule(
        "a job that comes back wakes",
        ("test_a_job_that_comes_back_wakes",),
        sql=sql(
            "finish",
            "v_answer.wakes := v_answer.wakes || array(select 'q' || q from unnest(v.queues) as u (q));",
            "null;",
        ),
        lua=lua(
            "runs",
            "  lines.arrive(line, row)\n  wakes.queue(row.run[QUEUE])\nend\n\n-- Take an active",
            "  lines.arrive(line, row)\nend\n\n-- Take an active",
        ),
    ),
]
