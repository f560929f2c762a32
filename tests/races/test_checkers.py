"""The checkers themselves: each one passes what is allowed to the last microsecond and fails on a planted violation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .checkers import (
    Begun,
    Busy,
    Ended,
    Started,
    begun_too_early,
    begun_without_a_start,
    certainly_busy,
    completed_by_another_run,
    completed_twice,
    crowded_windows,
    crowds,
    in_each_group,
    lost,
    made_up,
    prompt,
    ran_again_without_a_kill,
    started_after_the_end,
    started_again_too_early,
)

SECOND = 1_000_000


def starts_at(*instants: int, group: str | None = None) -> list[Started]:
    return [Started(f"job {at}", at, group=group) for at in instants]


def test_a_start_exactly_one_window_after_another_is_fine() -> None:
    assert crowded_windows(starts_at(0, 5, SECOND, SECOND + 5), most=2, per=SECOND) == []


def test_a_start_one_microsecond_too_early_is_found() -> None:
    (wrong,) = crowded_windows(starts_at(0, 5, SECOND - 1), most=2, per=SECOND)

    assert wrong.startswith("3 starts, 2 allowed, in 1000000 µs from 0")


def test_a_burst_on_the_border_of_two_fixed_windows_is_found() -> None:
    border = starts_at(SECOND - 2, SECOND - 1, SECOND, SECOND + 1)

    assert len(crowded_windows(border, most=2, per=SECOND)) == 2


def test_a_crowded_window_is_found_in_whatever_order_the_log_is() -> None:
    log = starts_at(*range(0, 10 * SECOND, SECOND // 10), 5 * SECOND + 1)
    random.Random(7).shuffle(log)

    assert crowded_windows(log, most=10, per=SECOND) != []


def test_costs_are_summed_up() -> None:
    log = [Started("big", 0, cost=3), Started("small", 1)]

    assert crowded_windows(log, most=4, per=SECOND) == []
    assert len(crowded_windows(log, most=3, per=SECOND)) == 1


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 6), st.integers(1, 30))
def test_windows_are_judged_as_by_looking_at_each_one(instants: list[int], most: int, per: int) -> None:
    fullest = max(sum(begin <= at < begin + per for at in instants) for begin in range(-30, 61))

    assert bool(crowded_windows(starts_at(*instants), most, per)) == (fullest > most)


def test_a_slot_that_is_given_back_can_be_taken_at_that_instant() -> None:
    assert crowds([Busy("a", 0, 10), Busy("b", 10, 20), Busy("c", 0, 20)], most=2) == []


def test_one_microsecond_at_the_same_time_is_found() -> None:
    (wrong,) = crowds([Busy("a", 0, 11), Busy("b", 10, 20), Busy("c", 0, 20)], most=2)

    assert wrong == "3 at once, 2 allowed, at 10: a, b, c"


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=30), st.integers(1, 4))
def test_crowds_are_judged_as_by_looking_at_each_instant(spans: list[tuple[int, int]], most: int) -> None:
    intervals = [Busy(f"job {number}", since, since + length) for number, (since, length) in enumerate(spans)]
    fullest = max(sum(each.since <= at < each.until for each in intervals) for at in range(60))

    assert bool(crowds(intervals, most)) == (fullest > most)


def test_groups_are_looked_at_one_by_one() -> None:
    apart = starts_at(0, group="a") + starts_at(1, group="b") + starts_at(2, 3, 4)
    together = [*apart, Started("again", 5, group="a")]

    assert in_each_group(lambda starts: crowded_windows(starts, 1, SECOND), apart) == []
    (wrong,) = in_each_group(lambda starts: crowded_windows(starts, 1, SECOND), together)
    assert wrong.startswith("group a: 2 starts")


def test_slots_of_a_group_are_looked_at_one_by_one() -> None:
    apart = [Busy("a", 0, 9, group="a"), Busy("b", 0, 9, group="b"), Busy("c", 0, 9), Busy("d", 0, 9)]
    together = [*apart, Busy("e", 8, 9, group="b")]

    assert in_each_group(lambda busy: crowds(busy, 1), apart) == []
    assert in_each_group(lambda busy: crowds(busy, 1), together) == ["group b: 2 at once, 1 allowed, at 8: b, e"]


def test_a_job_whose_worker_was_killed_keeps_its_slot_until_its_lease_ended() -> None:
    log = [Started("killed", 0), Started("killed", 2 * SECOND), Started("other", SECOND - 1)]
    ends = {
        "killed": Ended("killed", "completed", 2 * SECOND + 5),
        "other": Ended("other", "completed", SECOND + 5),
    }

    busy = certainly_busy(log, ends, lease=SECOND)

    assert [(each.job, each.since, each.until) for each in busy] == [
        ("killed", 0, SECOND),
        ("killed", 2 * SECOND, 2 * SECOND + 5),
        ("other", SECOND - 1, SECOND + 5),
    ]
    assert len(crowds(busy, most=1)) == 1


def test_a_job_that_has_not_ended_keeps_its_slot_for_its_lease() -> None:
    busy = certainly_busy([Started("a", 0)], {"a": Ended("a", "active")}, lease=SECOND)

    assert busy == [Busy("a", 0, SECOND)]


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([Ended("a", "completed", 1)], []),
        ([], ["a: gone"]),
        ([Ended("a", "waiting")], ["a: waiting"]),
        ([Ended("a", "active")], ["a: active"]),
        ([Ended("a", "completed", 1), Ended("a", "failed", 2)], ["a: completed, failed"]),
        ([Ended("b", "completed", 1)], ["a: gone"]),
    ],
    ids=["kept", "gone", "waiting", "active", "two ends", "another"],
)
def test_an_accepted_job_that_is_not_in_one_final_state_is_lost(found: list[Ended], wrong: list[str]) -> None:
    assert lost(["a", "a"], found) == wrong


def test_a_job_that_nobody_added_is_found() -> None:
    assert made_up(["a", "b"], ["a"]) == []
    assert made_up(["a"], ["a", "b"]) == ["b: never added"]


def test_a_start_after_the_end_is_found() -> None:
    ends = {"a": Ended("a", "completed", 10)}

    assert started_after_the_end([Started("a", 0), Started("b", 20)], ends) == []
    assert started_after_the_end([Started("a", 0), Started("a", 11)], ends) == ["a: completed at 10, started at 11"]


def test_a_second_completion_is_found() -> None:
    assert completed_twice(["a", "b"]) == []
    assert completed_twice(["a", "b", "a"]) == ["a: completed 2 times"]


def test_a_completion_by_a_run_that_lost_its_lease_is_found() -> None:
    log = [Started("a", 0), Started("a", 10)]

    assert completed_by_another_run({"a": 10}, log, {("a", 0), ("a", 10)}) == []
    assert completed_by_another_run({"a": 0}, log, {("a", 0), ("a", 10)}) == [
        "a: completed by the run of 0, last started at 10"
    ]


def test_a_completion_by_a_handler_that_never_ended_is_found() -> None:
    assert completed_by_another_run({"a": 10}, [Started("a", 10)], {("b", 10)}) == [
        "a: completed by the run of 10, last started at 10"
    ]


def test_an_end_that_was_forgotten_although_its_worker_lived_is_found() -> None:
    log = [Started("a", 0), Started("a", 10)]

    assert ran_again_without_a_kill({("a", 0): True, ("a", 10): False}, log) == []
    assert ran_again_without_a_kill({("a", 0): False}, log) == [
        "a: ended in a process that was not killed, and started again at 10"
    ]


def test_a_second_start_is_fine_when_the_lease_is_over_and_not_a_microsecond_before() -> None:
    assert started_again_too_early([Started("a", 0), Started("a", 10), Started("b", 1)], lease=10) == []
    assert started_again_too_early([Started("a", 9), Started("a", 0)], lease=10) == [
        "a: started at 0 and again 9 µs later, lease 10 µs"
    ]


def test_a_handler_that_ran_without_a_start_is_found() -> None:
    log = [Started("a", 0), Started("a", 10)]

    assert begun_without_a_start([Begun("a", 3, 0), Begun("a", 12, 10)], log) == []
    assert begun_without_a_start([Begun("a", 3, 1)], log) == ["a: begun 1 times for 0 starts at 1"]
    assert begun_without_a_start([Begun("b", 3, 0)], log) == ["b: begun 1 times for 0 starts at 0"]


def test_a_handler_that_ran_twice_for_one_start_is_found() -> None:
    assert begun_without_a_start([Begun("a", 3, 0), Begun("a", 4, 0)], [Started("a", 0)]) == [
        "a: begun 2 times for 1 starts at 0"
    ]


def test_a_handler_that_began_before_its_start_is_found() -> None:
    assert begun_too_early([Begun("a", 100, 1100)], ahead=1000) == []
    assert begun_too_early([Begun("a", 99, 1100)], ahead=1000) == ["a: begun 1 µs before its start"]


def test_prompt_handlers_are_those_close_to_the_quickest_whatever_the_clocks_show() -> None:
    begun = [Begun("a", 50_003, 1_000), Begun("b", 50_010, 1_001), Begun("c", 51_000, 1_002)]

    assert [each.job for each in prompt(begun, within=10)] == ["a", "b"]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 15)), max_size=40), st.integers(1, 4))
def test_what_is_claimed_of_prompt_handlers_follows_from_the_starts(drawn: list[tuple[int, int]], most: int) -> None:
    per, within, kept = 50, 10, []
    for at, late in sorted(drawn):
        if not crowded_windows([*(start for start, _ in kept), Started("next", at)], most, per):
            kept.append((Started(f"job {len(kept)}", at), late))
    begun = [Begun(start.job, start.at + late + 7_000, start.at) for start, late in kept]

    on_their_clock = [Started(each.job, each.at) for each in prompt(begun, within)]

    assert crowded_windows(on_their_clock, most, per - within) == []
