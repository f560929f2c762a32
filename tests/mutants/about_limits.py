"""Rules about windows, gaps, slots, holds and the numbers of limits."""

from __future__ import annotations

from .rule import Edit, Planted, Rule, lua, sql

OPENS = "test_a_rate_opens_exactly_one_window_after_the_start_that_leaves"

RULES = [
    Rule(
        "a window slides and has no border",
        ("test_a_window_slides_and_has_no_border",),
        python=Planted("fixed_window_instead_of_sliding"),
        sql=sql(
            "kinds",
            "and s.at <= p_now - p_parts[b + 3] order by s.at desc",
            "and s.at < p_now / p_parts[b + 3] * p_parts[b + 3] order by s.at desc",
        ),
        lua=lua(
            "rate",
            "return (rate.read_entry(meter, place, state, index)) + part[3]",
            "return (floor(rate.read_entry(meter, place, state, index) / part[3]) + 1) * part[3]",
        ),
    ),
    Rule(
        "a rate opens no microsecond before its window is over",
        (OPENS,),
        python=Planted("window_one_microsecond_short"),
        sql=sql("kinds", "return v_at + p_parts[b + 3];", "return v_at + p_parts[b + 3] - 1;"),
        lua=lua("rate", "index)) + part[3]", "index)) + part[3] - 1"),
    ),
    Rule(
        "a rate opens no microsecond after its window is over",
        (OPENS,),
        python=Planted("window_one_microsecond_long"),
        sql=sql("kinds", "return v_at + p_parts[b + 3];", "return v_at + p_parts[b + 3] + 1;"),
        lua=lua("rate", "index)) + part[3]", "index)) + part[3] + 1"),
    ),
    Rule(
        "what has left the window is free for a claim of many",
        (OPENS, "test_a_backlog_uses_all_that_a_rate_allows"),
        sql=sql(
            "kinds",
            "and s.at <= p_now - p_parts[b + 3] order by s.at desc",
            "and s.at < p_now - p_parts[b + 3] order by s.at desc",
        ),
    ),
    Rule(
        "a guard widens the window",
        ("test_a_guard_widens_the_window",),
        sql=sql("kinds", " + coalesce((v_part ->> 'guard')::bigint, 0), 0, 0, 0, -1,", ", 0, 0, 0, -1,"),
    ),
    Rule(
        "every start is charged",
        ("test_a_rate_starts_its_maximum_and_not_one_more", OPENS),
        python=Planted("start_not_charged"),
        sql=sql("start", "p_parts[b + 4] := p_parts[b + 4] + p_cost;", "p_parts[b + 4] := p_parts[b + 4];"),
        lua=lua("rate", "state[TOTAL] = state[TOTAL] + cost", "state[TOTAL] = state[TOTAL]"),
    ),
    Rule(
        "the end of a job gives nothing back to a rate",
        ("test_the_end_of_a_job_gives_nothing_back_to_a_rate",),
        python=Planted("start_given_back_at_the_end"),
        sql=sql(
            "finish",
            "awaited = false, parked = '{}',",
            "awaited = false, parked = '{}', parts = paceline.new_parts(m.kind),",
        ),
        lua=lua(
            "runs",
            "      meter.in_flight, meter.dirty, meter.room = meter.in_flight - 1, true, nil\n",
            "      meters.forget_starts(meter)\n"
            "      meter.in_flight, meter.dirty, meter.room = meter.in_flight - 1, true, nil\n",
        ),
    ),
    Rule(
        "even spacing loses no microsecond",
        ("test_even_spacing_divides_the_window_without_losing_a_microsecond",),
        python=Planted("spacing_that_drifts"),
        sql=sql("kinds", "p_parts[b + 2]) = p_now then", "p_parts[b + 2]) = p_now and false then"),
        lua=lua("kinds", "    if opens == at then", "    if opens == -1 then"),
    ),
    Rule(
        "even spacing follows a job with one interval for each unit of its cost",
        ("test_even_spacing_follows_a_job_with_one_interval_for_each_unit_of_its_cost",),
        sql=sql("kinds", "        p_parts[b + 6] := v_cost;", "        p_parts[b + 6] := 1;"),
        lua=lua(
            "kinds",
            "state[AT], state[CARRY], state[COST] = max(at, state[AT]), 0, cost\n",
            "state[AT], state[CARRY], state[COST] = max(at, state[AT]), 0, 1\n",
        ),
    ),
    Rule(
        "a delay keeps its gap",
        ("test_a_delay_keeps_a_gap_between_starts",),
        sql=sql(
            "kinds",
            "        return p_parts[b + 4] + p_parts[b + 3];\n    end if;",
            "        return p_parts[b + 4] + p_parts[b + 3] - 1;\n    end if;",
        ),
        lua=lua(
            "kinds", "state[AT] < 0 and 0 or state[AT] + part[2]", "state[AT] < 0 and 0 or state[AT] + part[2] - 1"
        ),
    ),
    Rule(
        "a concurrency counts every lease",
        ("test_a_concurrency_starts_its_maximum_and_the_next_when_one_ends",),
        sql=sql("start", "in_flight = m.in_flight + n.starts", "in_flight = m.in_flight + 1"),
        lua=lua(
            "room",
            "local number = meter.slots - meter.in_flight\n",
            "local number = meter.slots - meter.in_flight + 1\n",
        ),
    ),
    Rule(
        "a slot comes back when the lease of its job ends",
        ("test_a_slot_comes_back_exactly_when_the_lease_of_its_job_ends",),
        python=Planted("slot_that_leaks_when_a_lease_ends"),
        sql=sql(
            "finish",
            "v_freed := v.charged and paceline.free_ends(",
            "v_freed := v.charged and not p_over and paceline.free_ends(",
        ),
        lua=lua("runs", "  if keys then\n    runs.free", "  if keys and outcome ~= 'crashed' then\n    runs.free"),
    ),
    Rule(
        "a start is charged to all its limits or to none",
        ("test_no_target_is_charged_when_one_refuses",),
        python=Planted("charged_one_by_one"),
        sql=sql(
            "limits",
            "        v_answer := row (false, v_now,",
            "        update paceline.meter k set version = k.version + 1, parts = paceline.count_start(k, 1,"
            " v_now)"
            " where k.id = any (v_meters) and paceline.opens_at(k, 1) <= v_now;\n"
            "        v_answer := row (false, v_now,",
        ),
        lua=lua(
            "acquire",
            "  if step.args.waits then\n    reserve(keys)\n",
            "  for _, pair in ipairs(keys) do\n    if meters.opens_at(pair[1], 1) <= step.now then\n"
            "      meters.count(pair[1], 1)\n    end\n  end\n  if step.args.waits then\n"
            "    reserve(keys)\n",
        ),
    ),
    Rule(
        "a job that its group refuses is charged nowhere",
        ("test_a_job_whose_group_is_held_is_not_charged_to_shared_limits",),
        sql=sql(
            "start",
            "from unnest(p_picks) with ordinality as i (i, n) group by 1, 2) as e",
            "from generate_series(1, cardinality(t.a_lane)) with ordinality as i (i, n)\n"
            "                    where t.a_lane[i.i] is not null group by 1, 2) as e",
        ),
        lua=lua(
            "choosing",
            "    this.budget = this.budget - 1\n    lanes.file_until(lane, till)\n",
            "    for _, meter in ipairs(all) do\n      meters.count(meter, 1)\n    end\n"
            "    this.budget = this.budget - 1\n    lanes.file_until(lane, till)\n",
        ),
    ),
    Rule(
        "a full task hides no other",
        (
            "test_a_full_task_hides_no_other_task_at_any_depth",
            "test_a_full_task_does_not_hide_the_other_tasks_of_its_group",
        ),
        python=Planted("closed_class_hides_the_others"),
        sql=sql("choose", "where not k.k = any (p_closed)", "where p_closed = '{}'"),
        lua=lua(
            "turns",
            "      lane.popped = entry\n      return lane\n    end\n",
            "      lane.popped = entry\n      return lane\n    else\n      group.standing = {}\n"
            "      return nil\n    end\n",
        ),
    ),
    Rule(
        "each group has a counter of its own",
        ("test_each_group_has_a_counter_of_its_own", "test_a_full_group_hides_no_other_group_at_any_depth"),
        sql=sql(
            "choose",
            "where o.lim = u.lim and o.grp = t.name limit 1)\n                as y on true",
            "where o.lim = u.lim and o.grp <> '' limit 1)\n                as y on true",
        ),
        lua=lua("lanes", "own[place] = meters.get(name, lane.group.id)", "own[place] = meters.get(name, 'everybody')"),
    ),
    Rule(
        "a limit per group never applies to jobs without a group",
        ("test_a_limit_per_group_never_applies_to_jobs_without_a_group",),
        lua=lua("lanes", "    own = {}\n    if lane.group.id then", "    own = {}\n    if true then"),
    ),
    Rule(
        "a blocked group opens exactly when its key does",
        ("test_each_group_has_a_counter_of_its_own",),
        sql=sql("claim", "o.until > n.open_from and o.until <= p_now", "o.until > n.open_from and o.until < p_now"),
        lua=lua("filing", "local until_now = format('%.0f', step.now)", "local until_now = format('(%.0f', step.now)"),
    ),
    Rule(
        "a group at its concurrency goes on when one of its jobs ends, in whatever queue",
        (
            "test_an_end_in_one_queue_lets_the_group_start_in_another",
            "test_a_group_at_its_concurrency_waits_for_an_end",
        ),
        sql=sql(
            "finish",
            "    if v_wake then\n        insert into paceline.arrival",
            "    if false then\n        insert into paceline.arrival",
        ),
        lua=lua("runs", "      if was_full then\n", "      if false then\n"),
    ),
    # holds and refusals
    Rule(
        "a hold only grows",
        ("test_a_shorter_hold_does_not_shorten_a_longer_one",),
        python=Planted("hold_that_shrinks"),
        sql=sql("meters", "hold_until = greatest(hold_until, v_until)", "hold_until = v_until"),
        lua=lua(
            "holds", "  if at > meter.hold_until then\n    meter.hold_until,", "  if at > 0 then\n    meter.hold_until,"
        ),
    ),
    Rule(
        "a hold is not wiped by room in the window",
        ("test_a_hold_is_not_wiped_by_room_in_the_window", "test_a_held_limit_starts_nobody_before_its_time"),
        python=Planted("hold_wiped_by_room_in_the_window"),
        sql=sql(
            "start",
            "if m.hold_until > p_now or v_free <= 0 then return 0; end if;",
            "if v_free <= 0 then return 0; end if;",
        ),
        lua=lua(
            "meters",
            "  local at = meter.hold_until\n  for place, part in ipairs(meter.parts) do\n    if part[1] ~= 'conc",
            "  local at = 0\n  for place, part in ipairs(meter.parts) do\n    if part[1] ~= 'conc",
        ),
    ),
    Rule(
        "each refusal in a row holds twice as long",
        ("test_each_refusal_in_a_row_holds_twice_as_long_up_to_ten_minutes",),
        sql=sql("meters", "^ (least(p_refusals, 400) - 1)", "^ least(p_refusals, 400)"),
        lua=lua("holds", "backoff.multiplier ^ (meter.refusals - 1)", "backoff.multiplier ^ meter.refusals"),
    ),
    Rule(
        "a success starts the refusals over only if its job started after the hold",
        ("test_a_job_that_started_at_the_instant_of_the_hold_does_not_reset_the_backoff",),
        python=Edit("limits/admission.py", "if started_at > self.held_at:", "if started_at >= self.held_at:"),
        sql=sql("finish", "> m.held_at then 0 else m.refusals end", ">= m.held_at then 0 else m.refusals end"),
        lua=lua(
            "holds",
            "meter.refusals > 0 and started_at > meter.held_at then",
            "meter.refusals > 0 and started_at >= meter.held_at then",
        ),
    ),
    Rule(
        "jobs that ran when the hold was made are one refusal",
        ("test_jobs_that_started_at_the_instant_of_the_hold_are_refused_once",),
        python=Edit("limits/admission.py", "started_at <= self.held_at", "started_at < self.held_at"),
        sql=sql("meters", "p_started_at <= m.held_at then return", "p_started_at < m.held_at then return"),
        lua=lua("holds", "started_at <= meter.held_at then", "started_at < meter.held_at then"),
    ),
    # numbers that change
    Rule(
        "starts still count under other numbers",
        ("test_a_longer_window_counts_the_starts_inside_it", "test_a_raised_rate_starts_the_difference_at_once"),
        python=Planted("starts_forgotten_when_numbers_change"),
        sql=sql("kinds", "elsif v_old[v_from * 8 + 1] in (1, 5) then", "elsif false then"),
        lua=lua(
            "memory",
            "return rate.load(meter, place, part, delayed(by, unpack(dumped[best])))",
            "return new_window(part[2])",
        ),
    ),
    Rule(
        "another gap counts from the last start",
        ("test_another_gap_counts_from_the_last_start",),
        python=Planted("last_start_forgotten_when_numbers_change"),
        sql=sql("kinds", "            v_new[b + 4] := v_at;\n", "            v_new[b + 4] := -1;\n"),
        lua=lua("memory", "return { last, 0, cost }", "return { -1, 0, 1 }"),
    ),
    Rule(
        "the operator's numbers for one group win over those for all",
        ("test_the_operators_numbers_for_one_group_win_over_those_for_all",),
        sql=sql(
            "meters", "o.grp in (p_grp, '') order by o.grp desc limit 1", "o.grp in (p_grp, '') order by o.grp limit 1"
        ),
        lua=lua(
            "limits", "group and limit.said[group] or limit.said['']", "limit.said[''] or group and limit.said[group]"
        ),
    ),
    Rule(
        "the operator's numbers end exactly at their time",
        ("test_the_operators_numbers_end_exactly_at_their_time",),
        sql=sql("claim", "select s.next_expiry <= coalesce(p_now", "select s.next_expiry < coalesce(p_now"),
        lua=lua("limits", "  if step.now < step.head.next_expiry then", "  if step.now <= step.head.next_expiry then"),
    ),
    Rule(
        "a limit that a claim names is charged once",
        ("test_a_named_limit_that_the_job_meets_anyway_is_charged_once",),
        sql=sql("choose", "where not e.lim = any (d.shared)) as s on true", "where true) as s on true"),
        lua=lua("choosing", "      met = met or its == meter\n", ""),
    ),
    Rule(
        "pruning forgets no start that still counts",
        ("test_pruning_forgets_no_start_of_an_idle_group_that_still_counts",),
        sql=sql(
            "kinds",
            "m.parts[i * 8 + 7] >= 0 and m.parts[i * 8 + 7] + m.parts[i * 8 + 3] > p_now",
            "m.parts[i * 8 + 7] < 0",
        ),
        lua=lua("rate", "return state[LAST_AT] >= 0 and state[LAST_AT] + part[3] or 0", "return 0"),
    ),
]
