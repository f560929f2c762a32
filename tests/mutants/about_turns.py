"""Rules about turns, order, tasks and pauses."""

from __future__ import annotations

from .rule import Edit, Planted, Rule, lua, sql

NEVER_TWICE = "test_no_group_starts_twice_while_an_eligible_one_waits_for_its_turn"

RULES = [
    Rule(
        "a group pays one turn per start, also when one claim starts many",
        ("test_a_group_pays_a_turn_for_each_job_that_one_claim_starts",),
        python=Edit("limits/turns.py", " + cost * ONE // weight", " + cost // 10 * ONE"),
        sql=sql("turns", " + 65536 * (v_number - 1);", ";"),
        lua=lua("start", "line.virtual_time + weight * ONE, line.filings", "line.virtual_time, line.filings"),
    ),
    Rule(
        "a job of cost 10 pays ten turns",
        ("test_a_job_that_costs_more_takes_a_longer_turn",),
        python=Edit("limits/turns.py", "cost * ONE // weight", "ONE // weight"),
        sql=sql("claim", "65536 * case when p_job.costs is null then p_job.cost else 1 end", "65536"),
        lua=lua("start", "type(cost) == 'number' and cost or 1", "1"),
    ),
    Rule(
        "a job of cost 10 pays ten turns, also when it comes to an idle queue",
        ("test_a_costly_job_that_comes_to_an_idle_queue_takes_a_longer_turn",),
        python=Edit("limits/turns.py", "cost * ONE // weight", "ONE // weight"),
        sql=sql("turns", "and not w.again and not w.big", "and not w.again"),
        lua=lua("start", "type(cost) == 'number' and cost or 1", "1"),
    ),
    Rule(
        "a cost that is given by limit pays one turn",
        ("test_a_cost_by_limit_takes_a_plain_turn",),
        sql=sql("claim", "then p_job.cost else 1 end;", "then p_job.cost else 9 end;"),
        lua=lua("start", "and cost or 1\n", "and cost or 9\n"),
    ),
    Rule(
        "a group that had nothing waiting joins behind everyone who waits",
        ("test_a_group_that_arrives_goes_behind_everyone_who_waits", NEVER_TWICE),
        python=Planted("group_joins_at_the_current_turn"),
        sql=sql(
            "classes",
            "v_turn := greatest(v_turn, p_line.virtual_time + 65536);",
            "v_turn := greatest(v_turn, p_line.virtual_time);",
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
            "classes",
            "case when l.waiting = 0 then greatest(l.turn, n.virtual_time + 65536) else l.turn end as turn",
            "case when l.waiting = 0 then n.virtual_time + 65536 else l.turn end as turn",
        ),
        lua=lua(
            "lanes", "max(group.turn, line.virtual_time + ONE), line.filings", "line.virtual_time + ONE, line.filings"
        ),
    ),
    Rule(
        "time spent blocked is no credit",
        ("test_a_group_that_was_blocked_has_saved_no_turns", NEVER_TWICE),
        python=Planted("time_spent_blocked_is_credit"),
        sql=sql("turns", "v_turn := v_vt[q] + 65536;", "v_turn := g_turn[g] + 65536;"),
        lua=lua("start", "line.virtual_time + weight * ONE, line.filings", "group.turn + weight * ONE, line.filings"),
    ),
    Rule(
        "equal turns go by the order of filing",
        (
            "test_groups_start_in_turn",
            "test_groups_of_tasks_under_different_limits_start_in_the_order_they_came",
        ),
        sql=sql("turns", "if l_filed[l] < l_filed[v_best] then", "if l_filed[l] > l_filed[v_best] then"),
        lua=lua("turns", "a.turn == b.turn and a.filed < b.filed", "a.turn == b.turn and a.filed > b.filed"),
    ),
    Rule(
        "no lane that is ready is passed over",
        ("test_turns_go_on_over_single_claims", "test_jobs_start_in_the_order_they_were_added", NEVER_TWICE),
        sql=sql("turns", "low_turn[v_low] = v_lane.turn,", "low_turn[v_low] = v_lane.turn + 655360,"),
        lua=lua(
            "turns",
            "if not lane or not lane.touched then",
            "if (not lane or not lane.touched) and joined < 2 then",
        ),
    ),
    Rule(
        "no claim goes past lanes that it did not read",
        (
            "test_groups_that_wait_in_very_many_classes_start_their_oldest_jobs_in_turn",
            "test_no_group_starts_twice_while_an_eligible_one_waits_for_its_turn",
        ),
        sql=sql("turns", "            if v_edge_grp is not null then\n", "            if false then\n"),
        lua=lua("turns", "if waits and not (group and is_earlier(group, waits)) then", "if waits and not group then"),
    ),
    Rule(
        "a group that rests keeps the turns it has paid",
        (
            "test_pruning_gives_no_group_a_better_turn",
            "test_a_costly_job_that_comes_to_an_idle_queue_takes_a_longer_turn",
        ),
        sql=sql("manage", "where l.waiting > 0 or l.turn > v_line.virtual_time + 65536));", "where l.waiting > 0));"),
        lua=lua("lanes", "group.id and group.turn <= group.line.virtual_time + ONE then", "group.id then"),
    ),
    Rule(
        "queues of one claim take turns",
        ("test_several_queues_take_turns_in_one_claim",),
        sql=sql(
            "turns",
            "            c.turn := c.turn + 1;\n        end loop;\n        if n > 0 then",
            "        end loop;\n        if n > 0 then",
        ),
        lua=lua("start", "        still[#still + 1] = line\n", "        still[#still + 1] = asked[1]\n"),
    ),
    Rule(
        "a lower priority number goes first",
        ("test_a_lower_priority_number_goes_first", "test_priority_beats_lifo"),
        sql=sql(
            "turns",
            "            order by u.priority, u.place limit v_number) as w;",
            "            order by u.place limit v_number) as w;",
        ),
        lua=lua("lanes", "added[#added + 1] = row.head[PRIORITY]", "added[#added + 1] = 0"),
    ),
    Rule(
        "a job that joins others goes by its priority too",
        ("test_a_job_that_joins_others_takes_its_own_place",),
        sql=sql(
            "classes",
            "l.waiting = 0 or (o.priority, o.place) < (l.head_priority, l.head_place) as lowers",
            "l.waiting = 0 as lowers",
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
        sql=sql("insert", "case when p_lifo then -s.seq else s.seq end, p_attempts", "s.seq, p_attempts"),
        lua=lua("join", "lifo and -head.orders or head.orders", "head.orders"),
    ),
    Rule(
        "two lanes of one group go by the priority and order of their heads",
        (
            "test_priority_decides_inside_a_group_between_tasks_that_meet_different_limits",
            "test_a_queue_without_groups_is_first_in_first_out_whatever_limits_its_tasks_meet",
        ),
        sql=sql("turns", "elsif l_filed[l] = l_filed[v_best] and (j_priority", "elsif false and (j_priority"),
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
            "turns",
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
        sql=sql("turns", "and not d.paused and (p_known", "and (p_known"),
        lua=lua("choosing", "if known and not cls.paused then", "if known then"),
    ),
    Rule(
        "a paused group starts nothing, also when its first job comes later",
        (
            "test_a_pause_holds_for_jobs_that_arrive_later",
            "test_a_pause_holds_for_the_next_job_of_a_queue_that_has_worked_and_is_idle",
        ),
        sql=sql("turns", "and l.waiting = 0 and not g.paused", "and l.waiting = 0"),
        lua=lua(
            "lanes",
            "    lane.state = PAUSED\n  elseif lane.jobs == 1 then",
            "    lane.state = READY\n  elseif lane.jobs == 1 then",
        ),
    ),
]
