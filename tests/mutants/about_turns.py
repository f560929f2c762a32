"""Rules about turns, order, tasks and pauses."""

from __future__ import annotations

from .rule import Edit, Planted, Rule, lua, sql

NEVER_TWICE = "test_no_group_starts_twice_while_an_eligible_one_waits_for_its_turn"

RULES = [
    Rule(
        "a group pays one turn per start, also when one claim starts many",
        (
            "test_a_group_pays_a_turn_for_each_job_that_one_claim_starts",
            "test_a_group_pays_for_all_starts_of_a_claim_while_another_is_held",
        ),
        python=Edit("limits/turns.py", " + cost * ONE // weight", " + cost // 10 * ONE"),
        sql=sql("start", "+ s.starts::bigint * p_cost * paceline.one() as turn", "+ p_cost * paceline.one() as turn"),
        lua=lua("start", "line.virtual_time + weight * ONE, line.filings", "line.virtual_time, line.filings"),
    ),
    Rule(
        "a job of cost 10 pays ten turns",
        ("test_a_job_that_costs_more_takes_a_longer_turn",),
        python=Edit("limits/turns.py", "cost * ONE // weight", "ONE // weight"),
        sql=sql("start", "case when p_job.costs is null then coalesce(p_job.cost, 1) else 1 end", "1"),
        lua=lua("start", "type(cost) == 'number' and cost or 1", "1"),
    ),
    Rule(
        "a job of cost 10 pays ten turns, also when it comes to an idle queue",
        ("test_a_costly_job_that_comes_to_an_idle_queue_takes_a_longer_turn",),
        python=Edit("limits/turns.py", "cost * ONE // weight", "ONE // weight"),
        sql=sql("idle", "and not w.again and not w.big", "and not w.again"),
        lua=lua("start", "type(cost) == 'number' and cost or 1", "1"),
    ),
    Rule(
        "a cost that is given by limit pays one turn",
        ("test_a_cost_by_limit_takes_a_plain_turn",),
        sql=sql("start", "coalesce(p_job.cost, 1) else 1 end", "coalesce(p_job.cost, 1) else 9 end"),
        lua=lua("start", "and cost or 1\n", "and cost or 9\n"),
    ),
    Rule(
        "a group that had nothing waiting joins behind everyone who waits",
        ("test_a_group_that_arrives_goes_behind_everyone_who_waits", NEVER_TWICE),
        python=Planted("group_joins_at_the_current_turn"),
        sql=sql(
            "fold",
            "v_turn := greatest(v_turn, s.virtual_time + paceline.one());",
            "v_turn := greatest(v_turn, s.virtual_time);",
        ),
        lua=lua(
            "lanes",
            "max(group.turn, line.virtual_time + ONE), line.filings",
            "max(group.turn, line.virtual_time), line.filings",
        ),
    ),
    Rule(
        "a group that comes back keeps the turns it has paid",
        ("test_a_group_that_comes_back_keeps_the_turns_it_has_paid",),
        sql=sql(
            "fold",
            "v_turn := greatest(v_turn, s.virtual_time + paceline.one());",
            "v_turn := s.virtual_time + paceline.one();",
        ),
        lua=lua(
            "lanes", "max(group.turn, line.virtual_time + ONE), line.filings", "line.virtual_time + ONE, line.filings"
        ),
    ),
    Rule(
        "time spent blocked is no credit",
        ("test_a_group_that_was_blocked_has_saved_no_turns", NEVER_TWICE),
        python=Planted("time_spent_blocked_is_credit"),
        sql=sql("start", "greatest(t.l_turn[s.l], t.k_time[t.l_k[s.l]]) + s.starts", "t.l_turn[s.l] + s.starts"),
        lua=lua("start", "line.virtual_time + weight * ONE, line.filings", "group.turn + weight * ONE, line.filings"),
    ),
    Rule(
        "equal turns go by the order of filing",
        (
            "test_groups_start_in_turn",
            "test_groups_of_tasks_under_different_limits_start_in_the_order_they_came",
        ),
        sql=sql(
            "choose",
            "order by p.queue, tag, p.k, p.turn, p.filed, p.priority, p.place",
            "order by p.queue, tag, p.k, p.turn, p.filed desc, p.priority, p.place",
        ),
        lua=lua("turns", "a.turn == b.turn and a.filed < b.filed", "a.turn == b.turn and a.filed > b.filed"),
    ),
    Rule(
        "no lane that is ready is passed over",
        ("test_turns_go_on_over_single_claims", "test_jobs_start_in_the_order_they_were_added", NEVER_TWICE),
        sql=sql(
            "start",
            "paceline.marked(v_queue_state, p_marked[i], p_turns[i], p_filed[i]);",
            "paceline.marked(v_queue_state, p_marked[i], p_turns[i] + 10 * paceline.one(), p_filed[i]);",
        ),
        lua=lua(
            "turns", "if not lane or not lane.touched then", "if (not lane or not lane.touched) and joined < 2 then"
        ),
    ),
    Rule(
        "no claim goes past lanes that it did not read",
        (
            "test_groups_that_wait_in_very_many_classes_start_their_oldest_jobs_in_turn",
            "test_no_group_starts_twice_while_an_eligible_one_waits_for_its_turn",
        ),
        sql=sql(
            "choose",
            "            more := l is null;\n            exit pass when more;",
            "            continue when l is null;",
        ),
        lua=lua("turns", "if waits and not (group and is_earlier(group, waits)) then", "if waits and not group then"),
    ),
    Rule(
        "a group that rests keeps the turns it has paid",
        (
            "test_pruning_gives_no_group_a_better_turn",
            "test_a_costly_job_that_comes_to_an_idle_queue_takes_a_longer_turn",
        ),
        sql=sql(
            "prune",
            "where l.waiting > 0 or l.turn > v_queue_state.virtual_time + paceline.one()));",
            "where l.waiting > 0));",
        ),
        lua=lua("lanes", "group.id and group.turn <= group.line.virtual_time + ONE then", "group.id then"),
    ),
    Rule(
        "queues of one claim take turns",
        ("test_several_queues_take_turns_in_one_claim",),
        sql=sql("choose", "where u.place > c.last), v_active[1]);", "where false), v_active[1]);"),
        lua=lua("start", "        still[#still + 1] = line\n", "        still[#still + 1] = asked[1]\n"),
    ),
    Rule(
        "a lower priority number goes first",
        ("test_a_lower_priority_number_goes_first", "test_priority_beats_lifo"),
        sql=sql("choose", "order by j.priority, j.place rows", "order by j.place rows"),
        lua=lua("lanes", "added[#added + 1] = row.head[PRIORITY]", "added[#added + 1] = 0"),
    ),
    Rule(
        "a job that joins others goes by its priority too",
        ("test_a_job_that_joins_others_takes_its_own_place",),
        sql=sql(
            "fold", "if f.waiting[i] > 0 and (f.priorities[i], f.places[i]) >=", "if f.waiting[i] > 0 and (0, 0) <>"
        ),
        lua=lua(
            "join",
            "members[second] = heads[place][PRIORITY], lanes.place(order, id)",
            "members[second] = 0, lanes.place(order, id)",
        ),
    ),
    Rule(
        "the last LIFO job goes first",
        ("test_the_last_lifo_job_goes_first", "test_a_job_that_joins_others_takes_its_own_place"),
        sql=sql("insert", "case when e.lifo then -p_seqs[e.n] else p_seqs[e.n] end", "p_seqs[e.n]"),
        lua=lua("join", "lifo and -head.orders or head.orders", "head.orders"),
    ),
    Rule(
        "two lanes of one group go by the priority and order of their heads",
        (
            "test_priority_decides_inside_a_group_between_tasks_that_meet_different_limits",
            "test_a_queue_without_groups_is_first_in_first_out_whatever_limits_its_tasks_meet",
        ),
        sql=sql(
            "choose",
            "over (partition by j.grp\n            order by j.priority, j.place rows",
            "over (partition by j.grp\n            order by j.l desc, j.priority, j.place rows",
        ),
        lua=lua("turns", "and a.order < b.order)", "and a.order > b.order)"),
    ),
    Rule(
        "a worker gets only tasks that it knows",
        ("test_a_worker_gets_only_the_tasks_it_can_run", "test_old_and_new_workers_share_a_queue"),
        sql=sql("classes", "where queue = p_queue and p_task = any (tasks)", "where queue = p_queue"),
        lua=lua("choosing", "local known = not number", "local known = true"),
    ),
    Rule(
        "a worker gets only tasks that it knows, also from an idle queue",
        ("test_an_idle_queue_gives_nobody_a_task_that_he_does_not_know",),
        sql=sql(
            "idle",
            "and not d.paused and (p_known is null or p_known = any (d.known_by)) as usual",
            "and not d.paused as usual",
        ),
        lua=lua("choosing", "local known = not number", "local known = true"),
    ),
    Rule(
        "a paused queue starts nothing",
        ("test_what_is_paused_does_not_start_until_it_is_resumed",),
        sql=sql("claim", "filter (where not u.paused)", "filter (where u.paused is not null)"),
        lua=lua("choosing", "  if line.paused then\n    return nil\n  end\n  local this", "  local this"),
    ),
    Rule(
        "a paused task starts nothing, also in an idle queue",
        ("test_a_pause_holds_for_the_next_job_of_a_queue_that_has_worked_and_is_idle",),
        sql=sql("idle", "and not d.paused and (p_known", "and (p_known"),
        lua=lua("choosing", "if known and not cls.paused then", "if known then"),
    ),
    Rule(
        "a paused group starts nothing, also when its first job comes later",
        (
            "test_a_pause_holds_for_jobs_that_arrive_later",
            "test_a_pause_holds_for_the_next_job_of_a_queue_that_has_worked_and_is_idle",
        ),
        sql=sql("idle", "and l.waiting = 0 and not g.paused", "and l.waiting = 0"),
        lua=lua(
            "lanes",
            "    lane.state = PAUSED\n  elseif lane.jobs == 1 then",
            "    lane.state = READY\n  elseif lane.jobs == 1 then",
        ),
    ),
]
