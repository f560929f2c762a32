"""A guarantee's test that passes on its planted bug is a broken test: each of these must fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = sorted((ROOT / "tests" / "stores").glob("test_*.py"))

CAUGHT_BY = {
    "fixed_window_instead_of_sliding": ["test_a_window_slides_and_has_no_border"],
    "window_one_microsecond_short": ["test_a_rate_opens_exactly_one_window_after_the_start_that_leaves"],
    "window_one_microsecond_long": ["test_a_rate_opens_exactly_one_window_after_the_start_that_leaves"],
    "starts_forgotten_when_numbers_change": ["test_a_longer_window_counts_the_starts_inside_it"],
    "last_start_forgotten_when_numbers_change": ["test_another_gap_counts_from_the_last_start"],
    "spacing_that_drifts": ["test_even_spacing_divides_the_window_without_losing_a_microsecond"],
    "start_not_charged": ["test_a_rate_starts_its_maximum_and_not_one_more"],
    "start_given_back_at_the_end": ["test_the_end_of_a_job_gives_nothing_back_to_a_rate"],
    "charged_one_by_one": ["test_no_target_is_charged_when_one_refuses"],
    "slot_that_leaks_when_a_lease_ends": ["test_a_slot_comes_back_exactly_when_the_lease_of_its_job_ends"],
    "hold_that_shrinks": ["test_a_shorter_hold_does_not_shorten_a_longer_one"],
    "hold_wiped_by_room_in_the_window": ["test_a_hold_is_not_wiped_by_room_in_the_window"],
    "unfenced_finish": ["test_whoever_lost_the_lease_changes_nothing"],
    "lost_claim_is_started_again": ["test_a_claim_asked_again_gives_the_same_jobs_and_starts_nothing"],
    "attempt_used_by_a_refusal_from_outside": ["test_a_job_that_is_handed_back_uses_no_attempt"],
    "crash_counts_as_an_attempt": ["test_the_end_of_a_lease_is_a_crash_and_uses_no_attempt"],
    "group_size_counted_before_the_bulk": ["test_a_bulk_that_does_not_fit_is_refused_as_a_whole"],
    "group_joins_at_the_current_turn": ["test_no_group_starts_twice_while_an_eligible_one_waits_for_its_turn"],
    "time_spent_blocked_is_credit": ["test_no_group_starts_twice_while_an_eligible_one_waits_for_its_turn"],
    "closed_class_hides_the_others": ["test_a_full_task_hides_no_other_task_at_any_depth"],
    "big_job_that_never_reserves": ["test_a_big_job_keeps_the_room_free_until_it_started"],
    "lease_taken_back_too_early": ["test_a_job_is_given_again_exactly_when_its_lease_ends"],
    "clock_that_goes_back": ["test_time_stands_still_for_the_store_rather_than_go_back"],
    "claim_without_a_lock": ["test_48_claimers_start_exactly_what_a_rate_allows"],
}


def run(mutant: str, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run conformance tests by name in a process in which one bug is planted."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.mutants.planted"]
    environment = {**os.environ, "PACELINE_MUTANT": mutant, "PYTHONPATH": str(ROOT)}
    files = [str(file) for file in SUITE if any(f"def {test}(" in file.read_text() for test in tests)]
    command = [sys.executable, "-m", "pytest", *options, *files, "-k", " or ".join(tests)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("mutant", CAUGHT_BY)
def test_a_planted_bug_is_caught_by_the_test_of_its_guarantee(mutant: str) -> None:
    done = run(mutant, CAUGHT_BY[mutant])

    assert done.returncode == 1, f"not caught, or not run:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "failed" in done.stdout


def test_without_a_planted_bug_the_same_tests_pass() -> None:
    done = run("", sorted({test for tests in CAUGHT_BY.values() for test in tests}))

    assert done.returncode == 0, done.stdout[-2000:]
