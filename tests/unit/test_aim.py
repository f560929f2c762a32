"""Claims are sent as much ahead of an instant as the store takes to decide one."""

from __future__ import annotations

import pytest

from paceline.lifecycle.aim import LATE, LONGEST, Aim


def decided(takes: list[int], gap: int = 50_000) -> tuple[list[int], int]:
    """How late each start came under a gap when the n-th claim takes so long, and how many claims came too early."""
    aim, instant, late, early = Aim(), 1_000_000, [], 0
    for took in takes:
        sent_at = aim.before(instant)
        aim.learn(sent_at, sent_at + took, started=sent_at + took >= instant)
        if sent_at + took < instant:
            early += 1
            sent_at = max(sent_at + took, aim.before(instant))
            aim.learn(sent_at, sent_at + took, started=True)
        late.append(sent_at + took - instant)
        instant = sent_at + took + gap
    return late, early


def taught(takes: int) -> Aim:
    """An aim that has met many claims of a worker; each took so long."""
    aim = Aim()
    for number in range(100):
        sent_at = aim.before(number * 50_000)
        aim.learn(sent_at, sent_at + takes, started=True)
    return aim


@pytest.mark.parametrize("takes", [400, 2_000, 4_500, 9_000])
def test_what_a_claim_takes_is_made_up_for(takes):
    late, early = decided([takes] * 100)

    assert late[0] == takes
    assert all(LATE <= each <= LATE + 10 for each in late[60:])
    assert early == 0


def test_a_store_that_decides_at_once_is_asked_at_the_instant():
    assert decided([100] * 10) == ([100] * 10, 0)


def test_a_claim_is_never_sent_more_than_the_longest_ahead():
    assert taught(3 * LONGEST).before(1_000_000) == 1_000_000 - LONGEST + LATE


def test_claims_that_take_a_little_more_or_less_are_hardly_ever_early():
    late, early = decided([4_000 + place * 37 % 400 for place in range(200)])

    assert early <= 2
    assert sum(late[60:]) / 140 < 2 * LATE


def test_a_claim_that_came_too_early_is_sent_again_at_the_instant_itself():
    aim = taught(4_000)
    sent_at = aim.before(10_000_000)

    aim.learn(sent_at, sent_at + 1_000, started=False)

    assert aim.before(10_000_000) == 10_000_000
    assert aim.before(20_000_000) == 20_000_000 - 1_000 + LATE


def test_a_single_slow_claim_makes_the_next_one_no_refusal():
    late, early = decided([4_000] * 60 + [40_000] + [4_000] * 10)

    assert early == 0
    assert min(late) >= 0


def test_a_claim_that_others_were_ahead_of_teaches_nothing():
    aim = taught(4_000)
    before = aim.before(10_000_000)

    aim.learn(before, before + 9_000, started=False)

    assert aim.before(10_000_000) == before


def test_a_claim_for_no_instant_teaches_nothing():
    aim = taught(4_000)
    before = aim.before(10_000_000)
    aim.forget()

    aim.learn(9_000_000, 9_001_000, started=True)

    assert aim.before(10_000_000) == before
