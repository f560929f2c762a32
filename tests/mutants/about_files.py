"""Rules about a unit of work on a file: what a step needs is loaded, what it changed is written, nothing is stale."""

from __future__ import annotations

from .rule import Rule, beside

HISTORIES = "test_a_history_is_the_same_on_a_store_and_in_memory"
REMEMBERS = "test_a_handle_that_remembers_starts_what_memory_starts"
SET_ASIDE = "test_groups_that_are_set_aside_come_back_as_they_were"

RULES = [
    # loading
    Rule(
        "the lanes that wait for a slot are loaded with the run that frees it",
        (HISTORIES, REMEMBERS),
        sqlite=beside("sqlite/lanes", "if meter in stored and stored[meter].parked)", "if False)"),
    ),
    Rule(
        "delayed jobs that are due are loaded for a claim",
        (HISTORIES, "test_a_delayed_job_starts_exactly_when_it_is_due"),
        sqlite=beside("sqlite/needs", "        unit.loader.due(queue, now, most)\n", "        pass\n"),
    ),
    Rule(
        "leases that are over are loaded for a claim",
        (HISTORIES, "test_a_job_is_given_again_exactly_when_its_lease_ends"),
        sqlite=beside("sqlite/needs", "    unit.loader.leases(now, most, len(finishes))\n", ""),
    ),
    Rule(
        "a job brings its unique key",
        (HISTORIES, "test_a_finished_job_frees_its_key"),
        sqlite=beside("sqlite/load", "        if keyed:\n", "        if False:\n"),
    ),
    Rule(
        "more lanes come in the order of their turns, and none is left out",
        (HISTORIES, "test_jobs_wait_in_more_lanes_than_a_claim_reads_at_once"),
        sqlite=beside(
            "sqlite/lanes",
            "cls.ready_edge = (rows[-1][1], rows[-1][2]) if len(rows) == self.page else None",
            "cls.ready_edge = None",
        ),
    ),
    Rule(
        "more jobs of a lane are loaded when those at hand have started",
        (HISTORIES, "test_jobs_start_in_the_order_they_were_added", REMEMBERS),
        sqlite=beside("sqlite/lanes", "if len(found) == page else None", "if False else None"),
    ),
    # writing
    Rule(
        "the state of a lane is written",
        (HISTORIES, "test_a_new_head_opens_a_blocked_lane_of_which_no_job_was_read"),
        sqlite=beside(
            "sqlite/write", "                changed.append((*row, unit.numbers[lane]))\n", "                pass\n"
        ),
    ),
    Rule(
        "the starts of a rate are written",
        (HISTORIES, REMEMBERS),
        sqlite=beside("sqlite/meters", '            ("save_spent", spent),\n', ""),
    ),
    Rule(
        "a log that changed in its middle is written whole",
        (HISTORIES,),
        sqlite=beside("sqlite/meters", "log is not known or log.edits != edits\n", "log is not known\n"),
    ),
    Rule(
        "a lease that is renewed is written",
        (HISTORIES, "test_an_extension_counts_from_now"),
        sqlite=beside(
            "sqlite/rows", "row.state is not self.state or life_of(row) != self.life", "row.state is not self.state"
        ),
    ),
    Rule(
        "a job that left its lane leaves its place",
        (HISTORIES, "test_jobs_start_in_the_order_they_were_added"),
        sqlite=beside("sqlite/write", "drop_wait=left[True], drop_delayed=left[False]", "drop_delayed=left[False]"),
    ),
    # what is remembered
    Rule(
        "what a process remembers is forgotten when another one has written",
        (HISTORIES, REMEMBERS),
        sqlite=beside(
            "sqlite/unit", "        if version != self.version:\n            self._empty()\n", "        if True:\n"
        ),
    ),
    Rule(
        "rules are read again when another process has changed them",
        (HISTORIES, REMEMBERS),
        sqlite=beside(
            "sqlite/unit", "        if rules_version != self.rules_version:\n", "        if self._fresh and False:\n"
        ),
    ),
    Rule(
        "a log that another process has rewritten is read whole",
        (HISTORIES,),
        sqlite=beside("sqlite/meters", "known is not None and known[0] == generation and", "known is not None and"),
    ),
    Rule(
        "a running job that is remembered brings the groups of its keys",
        (SET_ASIDE,),
        sqlite=beside("sqlite/load", "                    if row.keys:\n", "                    if False:\n"),
    ),
    Rule(
        "what was undone is forgotten",
        (
            "test_a_step_that_breaks_does_not_fail_its_neighbours_and_leaves_nothing",
            "test_on_a_full_disk_none_of_many_is_added_and_nothing_is_started",
        ),
        sqlite=beside(
            "sqlite/writer", "            self._forget()\n            if not passes", "            if not passes"
        ),
    ),
]
