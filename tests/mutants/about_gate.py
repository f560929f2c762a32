"""Rules about where starts count: late ones are decided again, open until they begin, and count from there."""

from __future__ import annotations

from .rule import Edit, Rule, lua, sql

HELD = "test_a_late_start_that_is_refused_goes_back_uncharged_to_its_place"
LOWERED = "test_a_limit_that_was_lowered_meanwhile_decides_with_its_new_numbers"
OPEN = "test_a_late_start_that_is_admitted_is_open_and_counts_as_long_as_it_is"
BEGAN = "test_a_start_counts_from_the_instant_at_which_it_is_said_to_have_begun"


def limits(file: str, old: str, new: str) -> Edit:
    return Edit(f"limits/{file}.py", old, new)


def steps(file: str, old: str, new: str) -> Edit:
    return Edit(f"stores/steps/{file}.py", old, new)


def worker(file: str, old: str, new: str) -> Edit:
    return Edit(f"lifecycle/{file}.py", old, new)


RULES = [
    Rule(
        "a late start is decided again",
        (HELD, LOWERED),
        python=limits("admission", "return max([self.hold_until, *windows]) <= now", "return True"),
        sql=sql(
            "gate", "where k.id is not null and not paceline.admits_late(", "where false and not paceline.admits_late("
        ),
        lua=lua("late", "if not admits_late(pair[1], pair[2]) then", "if false then"),
    ),
    Rule(
        "a late start is decided by the windows too, not by holds alone",
        (LOWERED,),
        python=limits("admission", "return max([self.hold_until, *windows]) <= now", "return self.hold_until <= now"),
        sql=sql("gate", "i, p_cost + m.open) > p_now)\n$$;", "i, p_cost + m.open) > p_now and false)\n$$;"),
        lua=lua(
            "late", "meter.states[place], cost + meter.open) > step.now then", "meter.states[place], cost) > NEVER then"
        ),
    ),
    Rule(
        "its own charge is taken out before it is decided again",
        ("test_its_own_charge_is_taken_out_with_its_cost", OPEN),
        python=steps("gate", "    take_out(holder, keys)\n    if not all", "    if not all"),
        sql=sql(
            "gate",
            "        m.parts := paceline.take_out(m.id, m.parts, coalesce(p_taken[i], 1), p_at);\n        update",
            "        update",
        ),
        lua=lua(
            "late",
            "  take_out_of_all(holder, keys)\n  for _, pair in ipairs(keys) do\n    if not admits",
            "  for _, pair in ipairs(keys) do\n    if not admits",
        ),
    ),
    Rule(
        "a charge is taken out once",
        ("test_other_starts_of_the_same_instant_stay_where_they_are", "test_its_own_charge_is_taken_out_with_its_cost"),
        python=limits("rate", "taken = min(cost, cums[place] - before)", "taken = min(2 * cost, cums[place] - before)"),
        sql=sql(
            "gate", "v_taken := least(p_cost, v_cum - v_before);", "v_taken := least(2 * p_cost, v_cum - v_before);"
        ),
        lua=lua("late", "local taken = min(cost, spent - before)", "local taken = min(2 * cost, spent - before)"),
    ),
    Rule(
        "an entry is never taken out of another start's instant",
        ("test_what_was_forgotten_is_not_taken_out",),
        python=limits("rate", "or state.ats[place] != at:", "or False:"),
        sql=sql("gate", "and s.part = i and s.at = p_at;", "and s.part = i and s.at >= p_at order by s.at limit 1;"),
        lua=lua("late", "read_entry(meter, place, state, low) == at and low or nil", "low or nil"),
    ),
    Rule(
        "every window counts what is open",
        (BEGAN, "test_open_starts_of_jobs_count_for_permits"),
        python=limits(
            "admission",
            "        cost += self.open\n        for part, state in self.timed:",
            "        for part, state in self.timed:",
        ),
        sql=sql("kinds", "m.parts, i, p_cost + m.open));", "m.parts, i, p_cost));"),
        lua=lua("meters", "  cost = cost + meter.open\n", ""),
    ),
    Rule(
        "what is open shows as used",
        (OPEN,),
        python=limits("admission", "(self.open if isinstance(part, Rate) else 0)", "0"),
        sql=sql("kinds", "case when m.parts[i * 8 + 1] = 1 then m.open else 0 end;", "0;"),
        lua=lua("looking", " + (part[1] == 'rate' and meter.open or 0)", ""),
    ),
    Rule(
        "a start that began counts from there",
        (BEGAN, "test_a_handler_that_began_late_after_all_counts_from_there"),
        python=steps("begun", "        meter.begin(cost, at)\n", "        pass\n"),
        sql=sql("begun", "            p_parts := paceline.put_in(p_meter, p_parts, i, p_cost, p_at);\n", ""),
        lua=lua("late", "      put_in(meter, log[1], log[2], meter.states[log[1]], cost, at)\n", ""),
    ),
    Rule(
        "a start that began is open no more",
        (BEGAN, "test_an_answer_that_was_lost_can_be_asked_for_again"),
        python=steps("begun", "            meter.open_up(-cost)\n", "            pass\n"),
        sql=sql("begun", "            m.open := m.open - p_costs[i];\n", "            null;\n"),
        lua=lua("late", "      open_up(meter, -cost)\n", ""),
    ),
    Rule(
        "a start begins once, however often it is said",
        ("test_an_answer_that_was_lost_can_be_asked_for_again",),
        python=steps("begun", "    if holder.gate == BEGUN:\n        return\n", ""),
        sql=sql("begun", "filter (where t.gate <> 2),", "filter (where t.gate is not null),", 2),
        lua=lua("late", "  if holder.run[GATE] == BEGUN then\n    return\n  end\n  local keys", "  local keys"),
    ),
    Rule(
        "a start counts from when it began, not from when that is said",
        ("test_a_start_counts_from_when_it_began_however_late_that_is_said",),
        python=steps("begun", "now - each.ago,", "now,"),
        sql=sql("begun", "p_now - coalesce(t.ago, 0), s.started_at", "p_now, s.started_at", 2),
        lua=lua("begun", "step.now - lease[3],", "step.now,"),
    ),
    Rule(
        "a start that began before others counts before them",
        ("test_a_start_counts_from_when_it_began_however_late_that_is_said",),
        python=limits(
            "rate",
            "        if not ats or at >= ats[-1]:\n            self.charge(state, cost, at)\n",
            "        if True:\n            self.charge(state, cost, at)\n",
        ),
        sql=sql("begun", "    if p_at >= p_parts[b + 7] then return", "    if true then return"),
        lua=lua("late", "if state[LAST_AT] < 0 or at >= state[LAST_AT] then", "if true then"),
    ),
    Rule(
        "the log of starts shows where a handler began",
        (BEGAN,),
        python=steps("begun", "        state.queue(holder.job.queue).move_start(holder, at)\n", "        pass\n"),
        sql=sql("begun", "        perform paceline.move_starts(p_seqs, v_begins);\n", ""),
        lua=lua("late", "    call('RPUSH', starts_of(holder), late.start_record(holder, at))\n", ""),
    ),
    Rule(
        "a start that did not happen is not in the log of starts",
        (HELD,),
        python=steps("gate", "    state.queue(row.job.queue).drop_start(row)\n", ""),
        sql=sql("gate", "                perform paceline.move_starts(array[v_lease.seq], null);\n", ""),
        lua=lua("late", "  local keys = known_keys(row)\n  drop_start(row)\n", "  local keys = known_keys(row)\n"),
    ),
    Rule(
        "the end of a lease frees an open start",
        ("test_the_end_of_a_lease_frees_its_own_open_start_only",),
        python=steps("begun", "        take_out(holder, known_keys(state, holder))\n", "        pass\n"),
        sql=sql("gate", "    perform paceline.open_up(p_meters, p_taken, -1);\n", ""),
        lua=lua(
            "late", "  if holder.run[GATE] ~= OPEN then\n    return\n  end\n", "  if true then\n    return\n  end\n"
        ),
    ),
    Rule(
        "whoever waits for an open start is served once it began",
        ("test_a_group_that_waits_for_an_open_start_is_served_once_it_began",),
        python=steps("begun", "    state.unpark(keys)\n", ""),
        sql=sql("begun", "from unnest(m.parked) as t (queue);", "from unnest(m.parked) as t (queue) where false;"),
        lua=lua(
            "late",
            "  touch(holder)\n  for _, pair in ipairs(keys) do\n    runs.unpark(pair[1])\n",
            "  touch(holder)\n  for _, pair in ipairs(keys) do\n",
        ),
    ),
    Rule(
        "under a shorter guard earlier starts count as long as before",
        ("test_a_lowered_guard_counts_for_new_starts_only",),
        python=limits("rate", "self._delay(window, old.guard_us - self.guard_us)", "self._delay(window, 0)"),
        sql=sql("kinds", "            v_later := greatest(0, case", "            v_later := least(0, case"),
    ),
    Rule(
        "a job comes with the smallest guard of its own rates",
        ("test_the_smallest_guard_of_its_own_rates_comes_with_a_job",),
        python=limits(
            "admission",
            "min((guard for guard in guards if guard), default",
            "max((guard for guard in guards if guard), default",
        ),
    ),
    Rule(
        "a handler that would begin too late waits for the store's answer",
        ("test_what_is_held_meanwhile_does_not_begin",),
        python=worker("gate", "return since_boot() - self.since > self.guard and not self.opened", "return False"),
    ),
    Rule(
        "a claim that is asked again is timed from its first send",
        ("test_a_claim_that_was_asked_again_is_timed_from_its_first_send",),
        python=worker("ends", "self.since = asked_at + claim.waited", "self.since = since_boot() + claim.waited"),
    ),
    Rule(
        "a handler looks once more after its first line",
        ("test_a_handler_that_was_stopped_between_gate_and_first_line_is_reported",),
        python=worker("gate", "is_late = passage.opened or lag > passage.guard", "is_late = passage.opened"),
    ),
    Rule(
        "what is open is reported when it has begun",
        ("test_a_long_handler_that_began_late_is_open_no_more",),
        python=worker(
            "gate",
            "is_late = passage.opened or lag > passage.guard",
            "is_late = lag > passage.guard and not passage.opened",
        ),
    ),
    Rule(
        "only windows and holds are asked again",
        ("test_slots_gaps_pauses_and_reservations_are_not_asked_again",),
        sql=sql(
            "gate",
            "where m.parts[i * 8 + 1] = 1 and paceline.part_opens(m.id, m.parts, i, p_cost + m.open) > p_now)",
            "where m.parts[i * 8 + 1] <> 2 and paceline.part_opens(m.id, m.parts, i, p_cost + m.open) > p_now)",
        ),
    ),
    Rule(
        "an open start is in every window, also when one claim starts many",
        (BEGAN,),
        sql=sql("start", "then m.parts[b + 2] - m.open\n", "then m.parts[b + 2]\n"),
    ),
    Rule(
        "late starts that are decided twice are open once",
        ("test_an_answer_that_was_lost_can_be_asked_for_again",),
        sql=sql("gate", "elsif v_lease.gate = 0 then", "elsif v_lease.gate < 2 then"),
    ),
    Rule(
        "a run that ends has begun",
        ("test_a_run_that_ends_has_begun[completed]",),
        sql=sql("finish", "    if v.open and not p_over then\n", "    if false then\n"),
    ),
    Rule(
        "the end of its lease frees an open permit",
        ("test_the_end_of_its_lease_frees_an_open_permit",),
        sql=sql("take_back", "    if p_permit.gate = 1 then", "    if false then"),
    ),
    Rule(
        "every job of a claim has the smallest guard of its own rates",
        ("test_every_job_of_a_claim_has_its_own_guard",),
        sql=sql("start", "min(t.m_guard[u.m]) as guard", "max(t.m_guard[u.m]) as guard"),
    ),
]
