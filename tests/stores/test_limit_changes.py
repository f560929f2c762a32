"""Limits whose numbers change while they count: nothing that still counts is forgotten."""

from __future__ import annotations

import pytest

from paceline.clock import NEVER
from paceline.errors import ConfigError
from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Limit, Rate, Unlimited
from paceline.stores.interface import Changed, Override, Target

from .builders import (
    HOUR,
    MINUTE,
    SECOND,
    add,
    add_many,
    claim,
    claimed,
    complete,
    declare,
    groups_of,
    hold,
    opens_exactly_at,
    start,
    usage,
)


async def start_every_second(store, clock, number: int) -> int:
    """Start jobs at 0 s, 1 s, 2 s …; returns the first instant. The clock stays at the last start."""
    first = clock.now()
    await add_many(store, number + 20)
    for second in range(number):
        clock.to(first + second * SECOND)
        await start(store)
    return first


# declaring


@pytest.mark.parametrize("scope", [{}, {"tasks": ["work"]}, {"by": "group"}], ids=["all", "task", "group"])
async def test_a_limit_holds_for_jobs_that_already_wait(store, scope):
    await add_many(store, 5, group="acme")

    await declare(store, "all", Rate(2, per="1m"), **scope)

    assert len((await claim(store, 5)).jobs) == 2


async def test_declaring_the_same_again_changes_nothing(store):
    await declare(store, "all", Rate(2, per="1m"))
    await add_many(store, 5)
    await start(store, 2)

    assert await store.set_limits([Limit("all", Rate(2, per="60s"))]) == []

    assert claimed(await claim(store, 5)) == []


async def test_declaring_other_numbers_names_the_old_and_the_new(store):
    old, new = Limit("all", Rate(2, per="1m")), Limit("all", Rate(3, per="1m"))
    await store.set_limits([old])

    assert await store.set_limits([new, Limit("other", Concurrency(1))]) == [Changed(old, new)]

    assert sorted(await store.limits(), key=lambda limit: limit.name) == [new, Limit("other", Concurrency(1))]


@pytest.mark.parametrize("scope", [{"queues": ["line"]}, {"tasks": ["work"]}, {"by": "group"}])
async def test_one_name_has_one_scope(store, scope):
    await declare(store, "all", Rate(2, per="1m"))

    with pytest.raises(ConfigError):
        await store.set_limits([Limit("new", Concurrency(1)), Limit("all", Rate(2, per="1m"), **scope)])

    assert await store.limits() == [Limit("all", Rate(2, per="1m"))]


async def test_another_handle_meets_the_latest_declaration(store, handle):
    await declare(store, "all", Rate(1, per="1m"))
    await add_many(store, 5)

    async with handle() as other:
        await declare(other, "all", Rate(3, per="1m"))

    assert len((await claim(store, 5)).jobs) == 3


# rates


async def test_a_raised_rate_starts_the_difference_at_once(store):
    await declare(store, "all", Rate(1, per="1m"))
    await add_many(store, 5)
    await start(store)

    await declare(store, "all", Rate(3, per="1m"))

    assert len((await claim(store, 5)).jobs) == 2


async def test_a_lowered_rate_waits_until_enough_starts_have_left(store, clock):
    await declare(store, "all", Rate(5, per="1m"))
    first = await start_every_second(store, clock, 3)

    await declare(store, "all", Rate(2, per="1m"))

    await opens_exactly_at(store, clock, first + 1 * SECOND + MINUTE)
    await opens_exactly_at(store, clock, first + 2 * SECOND + MINUTE)


async def test_a_longer_window_counts_the_starts_inside_it(store, clock):
    await declare(store, "all", Rate(2, per="1s"))
    first = await start_every_second(store, clock, 4)

    await declare(store, "all", Rate(2, per="1m"))

    await opens_exactly_at(store, clock, first + 2 * SECOND + MINUTE)
    await opens_exactly_at(store, clock, first + 3 * SECOND + MINUTE)


async def test_a_shorter_window_forgets_the_starts_outside_it(store, clock):
    await declare(store, "all", Rate(3, per="1h"))
    first = await start_every_second(store, clock, 3)

    await declare(store, "all", Rate(3, per="10s"))

    await opens_exactly_at(store, clock, first + 10 * SECOND)


async def test_a_shorter_window_may_be_open_already(store, clock):
    await declare(store, "all", Rate(1, per="1h"))
    await add_many(store, 2)
    await start(store)
    clock.advance("10s")

    await declare(store, "all", Rate(1, per="10s"))

    assert len((await claim(store)).jobs) == 1


async def test_a_larger_maximum_takes_what_it_cannot_know_for_the_last_start_that_was_overwritten(store, clock):
    await declare(store, "all", Rate(1, per="1s"))
    first = await start_every_second(store, clock, 10)

    await declare(store, "all", Rate(5, per="1m"))

    await opens_exactly_at(store, clock, first + 8 * SECOND + MINUTE)


async def test_a_rate_that_was_lowered_and_raised_again_has_forgotten_nothing_that_counts(store, clock):
    await declare(store, "all", Rate(5, per="1m"))
    first = await start_every_second(store, clock, 5)
    await declare(store, "all", Rate(1, per="1m"))

    await declare(store, "all", Rate(5, per="1m"))

    await opens_exactly_at(store, clock, first + 3 * SECOND + MINUTE)


async def test_a_rate_keeps_its_starts_when_a_concurrency_joins_it(store, clock):
    await declare(store, "all", Rate(2, per="1m"))
    first = await start_every_second(store, clock, 2)

    await declare(store, "all", Rate(2, per="1m") & Concurrency(9))

    await opens_exactly_at(store, clock, first + MINUTE)


async def test_costs_are_kept_when_the_numbers_change(store, clock):
    await declare(store, "tokens", Rate(10, per="1m"))
    await add(store, "a", "b", cost=4)
    await start(store)

    await declare(store, "tokens", Rate(7, per="1m"))

    assert (await usage(store, "tokens")).used == 4
    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_the_numbers_of_every_group_change_together(store):
    await declare(store, "tenant", Rate(1, per="1m"), by="group")
    for group in ("a", "b"):
        await add_many(store, 5, group=group)
    await start(store, 2)

    await declare(store, "tenant", Rate(2, per="1m"), by="group", overrides={"b": Rate(4, per="1m")})

    groups = groups_of((await claim(store, 10)).jobs)
    assert (groups.count("a"), groups.count("b")) == (1, 3)


# other kinds


async def test_a_lowered_concurrency_starts_nobody_until_enough_have_ended(store):
    await declare(store, "all", Concurrency(3))
    await add_many(store, 6)
    jobs = await start(store, 3)

    await declare(store, "all", Concurrency(1))

    for job in jobs[:2]:
        await complete(store, [job])
        assert claimed(await claim(store, 5)) == []
    await complete(store, [jobs[2]])
    assert len((await claim(store, 5)).jobs) == 1


async def test_a_raised_concurrency_starts_the_difference_at_once(store):
    await declare(store, "all", Concurrency(1))
    await add_many(store, 6)
    await start(store)

    await declare(store, "all", Concurrency(4))

    assert len((await claim(store, 6)).jobs) == 3


async def test_a_raised_concurrency_of_groups_starts_the_difference_at_once(store):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add_many(store, 6, group="acme")
    assert len((await claim(store, 6)).jobs) == 1

    await declare(store, "tenant", Concurrency(4), by="group")

    assert len((await claim(store, 6)).jobs) == 3


async def test_a_concurrency_in_place_of_a_rate_counts_what_runs(store):
    await declare(store, "all", Rate(9, per="1m"))
    await add_many(store, 6)
    jobs = await start(store, 2)

    await declare(store, "all", Concurrency(2))

    assert claimed(await claim(store, 5)) == []
    await complete(store, jobs[:1])
    assert len((await claim(store, 5)).jobs) == 1


async def test_another_gap_counts_from_the_last_start(store, clock):
    await declare(store, "all", Delay("1s"))
    await add_many(store, 2)
    await start(store)

    await declare(store, "all", Delay("10s"))

    await opens_exactly_at(store, clock, clock.now() + 10 * SECOND)


async def test_another_spacing_counts_from_the_last_start(store, clock):
    await declare(store, "all", EvenlySpaced(10, per="1s"))
    await add_many(store, 2)
    await start(store)

    await declare(store, "all", EvenlySpaced(10, per="10s"))

    await opens_exactly_at(store, clock, clock.now() + 1 * SECOND)


async def test_a_gap_in_place_of_a_rate_counts_from_the_last_start(store, clock):
    await declare(store, "all", Rate(9, per="1m"))
    last = await start_every_second(store, clock, 3) + 2 * SECOND

    await declare(store, "all", Delay("10s"))

    await opens_exactly_at(store, clock, last + 10 * SECOND)


@pytest.mark.parametrize(
    ("kind", "simple"),
    [
        (Unlimited() & Rate(1, per="1h"), Rate(1, per="1h")),
        (AllOf(), Unlimited()),
        (AllOf(Delay("1s")), Delay("1s")),
        (Rate(1, per="1h") & Unlimited() & Concurrency(2), Rate(1, per="1h") & Concurrency(2)),
    ],
    ids=repr,
)
async def test_a_kind_comes_back_without_what_changes_nothing(store, handle, kind, simple):
    await declare(store, "all", kind)
    await declare(store, "tenant", Delay("1s"), by="group", overrides={"acme": kind})

    async with handle() as other:
        for each in (store, other):
            found = {limit.name: limit for limit in await each.limits()}
            kinds = [found["all"].kind, found["tenant"].overrides["acme"], (await usage(each, "all")).kind]
            assert [repr(back) for back in kinds] == [repr(simple)] * 3
    assert (kind, hash(kind)) == (simple, hash(simple))


OTHERS = [
    Concurrency(50),
    Unlimited(),
    Delay("1us"),
    EvenlySpaced(1_000_000, per="1s"),
    Rate(100, per="1ms"),
    Delay("1us") & Concurrency(50),
]


@pytest.mark.parametrize("scope", [{}, {"by": "group"}], ids=["all", "group"])
@pytest.mark.parametrize("other", OTHERS, ids=repr)
async def test_a_rate_has_forgotten_nothing_when_an_override_of_another_kind_is_lifted(store, clock, other, scope):
    await declare(store, "all", Rate(3, per="1h"), **scope)
    await add_many(store, 20, group="acme")
    first = clock.now()
    await start(store, 2)
    clock.advance("1m")

    await store.override(Override(limit="all", kind=other), None)
    await start(store)
    clock.advance("10s")
    await store.prune()
    await store.lift("all", None)

    await opens_exactly_at(store, clock, first + HOUR)


@pytest.mark.parametrize("other", OTHERS, ids=repr)
async def test_a_rate_has_forgotten_nothing_when_an_override_of_another_kind_expires(store, clock, other):
    await declare(store, "all", Rate(3, per="1h"), by="group")
    await add_many(store, 20, group="acme")
    first = clock.now()
    await start(store, 2)

    await store.override(Override(limit="all", kind=other, group="acme"), MINUTE)
    clock.advance("30s")
    await start(store)
    clock.advance("2m")

    await opens_exactly_at(store, clock, first + HOUR)


@pytest.mark.parametrize("other", OTHERS, ids=repr)
async def test_a_declaration_of_another_kind_that_is_taken_back_forgets_nothing(store, clock, other):
    await declare(store, "all", Rate(5, per="1h"))
    await add_many(store, 20, cost=2)
    first = clock.now()
    await start(store)

    await declare(store, "all", other)
    clock.advance("1m")
    await start(store)
    await declare(store, "all", Rate(5, per="1h"))

    await opens_exactly_at(store, clock, first + HOUR)


@pytest.mark.parametrize("other", [Concurrency(50), Unlimited(), Rate(100, per="1ms")], ids=repr)
@pytest.mark.parametrize("kind", [Delay("1m"), EvenlySpaced(60, per="20m")], ids=repr)
async def test_a_gap_has_forgotten_no_start_when_an_override_of_another_kind_is_lifted(store, clock, kind, other):
    await declare(store, "all", kind, by="group")
    await add_many(store, 20, group="acme", cost=3)
    await start(store)

    await store.override(Override(limit="all", kind=other), None)
    clock.advance("10s")
    await start(store)
    clock.advance("10s")
    await store.prune()
    await store.lift("all", None)

    last = clock.now() - 10 * SECOND
    await opens_exactly_at(store, clock, last + MINUTE)


async def test_parts_in_another_order_have_forgotten_nothing(store, clock):
    rates = Rate(2, per="1m"), Rate(3, per="1h")
    await declare(store, "all", rates[0] & rates[1] & Concurrency(9))
    first = await start_every_second(store, clock, 2)

    await declare(store, "all", Concurrency(9) & rates[1] & rates[0])

    await opens_exactly_at(store, clock, first + MINUTE)
    await opens_exactly_at(store, clock, first + HOUR)


async def test_permits_count_when_an_override_of_another_kind_is_lifted(store, clock):
    await store.set_limits([Limit.for_code("api", Rate(2, per="1h"))])
    assert (await store.acquire([Target("api")], "one", MINUTE)).granted

    await store.override(Override(limit="api", kind=Concurrency(9)), None)
    assert (await store.acquire([Target("api")], "two", MINUTE)).granted
    await store.lift("api", None)

    refused = await store.acquire([Target("api")], "three", MINUTE)
    assert (refused.granted, refused.until) == (False, clock.now() + HOUR)


@pytest.mark.parametrize("before", ["nothing", "looked", "held", "cleared", "cleared under the override"])
async def test_a_kind_that_counted_no_start_and_rules_no_more_leaves_no_log(store, before):
    await store.set_limits([Limit.for_code("api", Rate(5, per="1h"))])
    if before == "looked":
        await store.usage("api", None)
    elif before == "held":
        await hold(store, "api", for_="1m")
        await store.release("api", None)
    elif before != "nothing":
        await store.acquire([Target("api")], "first", MINUTE)
    if before == "cleared":
        await store.clear("api", None)
    await store.override(Override(limit="api", kind=Concurrency(2)), None)
    if before == "cleared under the override":
        await store.clear("api", None)
    await store.set_limits([Limit.for_code("api", Unlimited())])
    assert (await store.acquire([Target("api", cost=2)], "one", MINUTE)).granted

    await store.override(Override(limit="api", kind=Rate(6, per="2h")), None)

    assert (await store.usage("api", None)).used == 0


async def test_a_limit_that_is_cleared_under_an_override_has_forgotten_all(store):
    await declare(store, "all", Rate(2, per="1h"))
    await add_many(store, 20)
    await start(store, 2)

    await store.override(Override(limit="all", kind=Concurrency(50)), None)
    await start(store, 3)
    await store.clear("all", None)
    await store.lift("all", None)

    assert len((await claim(store, 9)).jobs) == 2


async def test_a_limit_may_be_lifted_by_declaring_it_unlimited(store):
    await declare(store, "all", Rate(1, per="1h"))
    await add_many(store, 5)
    await start(store)

    await declare(store, "all", Unlimited())

    assert len((await claim(store, 5)).jobs) == 4


# dropped


async def test_a_dropped_limit_limits_nobody(store):
    await declare(store, "all", Rate(1, per="1h"))
    await add_many(store, 5)
    jobs = await start(store)

    assert await store.drop_limit("all") is True

    assert (await store.limits(), len((await claim(store, 5)).jobs)) == ([], 4)
    await complete(store, jobs)


async def test_dropping_a_limit_that_nobody_declared_is_no_error(store):
    assert await store.drop_limit("all") is False


async def test_a_dropped_limit_of_groups_limits_nobody(store):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add_many(store, 5, group="acme")
    await start(store)
    assert claimed(await claim(store, 5)) == []

    await store.drop_limit("tenant")

    assert len((await claim(store, 5)).jobs) == 4


async def test_a_dropped_limit_takes_its_overrides_along(store):
    await declare(store, "all", Rate(1, per="1h"))
    await store.override(Override(limit="all", kind=Rate(9, per="1h")), None)
    await store.drop_limit("all")

    await declare(store, "all", Rate(1, per="1h"))

    await add_many(store, 5)
    assert (await store.overrides(), len((await claim(store, 5)).jobs)) == ([], 1)


async def test_a_dropped_name_may_be_declared_for_another_scope(store):
    await declare(store, "it", Rate(1, per="1h"))
    await store.drop_limit("it")

    await declare(store, "it", Concurrency(1), tasks=["other"])

    await add_many(store, 5)
    assert len((await claim(store, 5)).jobs) == 5


# the operator's numbers


async def test_the_operators_numbers_win_over_declared_ones(store):
    await declare(store, "all", Rate(1, per="1h"))
    await add_many(store, 5)

    await store.override(Override(limit="all", kind=Rate(3, per="1h"), reason="launch day"), None)

    assert len((await claim(store, 5)).jobs) == 3
    (override,) = await store.overrides()
    assert (override.limit, override.group, override.kind) == ("all", None, Rate(3, per="1h"))
    assert (override.reason, override.expires_at) == ("launch day", None)


async def test_the_operators_numbers_win_over_later_declarations(store):
    await declare(store, "all", Rate(1, per="1h"))
    await add_many(store, 9)
    await store.override(Override(limit="all", kind=Rate(3, per="1h")), None)

    await declare(store, "all", Rate(5, per="1h"))

    assert len((await claim(store, 9)).jobs) == 3


async def test_lifting_goes_back_to_what_is_declared_now(store):
    await declare(store, "all", Rate(1, per="1h"))
    await add_many(store, 9)
    await store.override(Override(limit="all", kind=Rate(3, per="1h")), None)
    await start(store, 3)
    await declare(store, "all", Rate(5, per="1h"))

    await store.lift("all", None)

    assert (await store.overrides(), len((await claim(store, 9)).jobs)) == ([], 2)


async def test_the_operators_numbers_end_exactly_at_their_time(store, clock):
    await declare(store, "all", Concurrency(2))
    await add_many(store, 9)
    await store.override(Override(limit="all", kind=Concurrency(1)), 10 * MINUTE)
    await start(store)

    await opens_exactly_at(store, clock, clock.now() + 10 * MINUTE)

    assert await store.overrides() == []


async def test_the_store_says_when_the_operators_numbers_end(store, clock):
    await declare(store, "all", Concurrency(2))

    await store.override(Override(limit="all", kind=Concurrency(1)), HOUR)

    assert [override.expires_at for override in await store.overrides()] == [clock.now() + HOUR]


async def test_starts_still_count_when_the_operators_numbers_end(store, clock):
    await declare(store, "all", Rate(2, per="1h"))
    await add_many(store, 9)
    await store.override(Override(limit="all", kind=Rate(5, per="1h")), MINUTE)
    await start(store, 5)

    clock.advance("1m")

    await opens_exactly_at(store, clock, clock.now() - MINUTE + HOUR)


async def test_the_operators_numbers_may_be_for_one_group(store):
    await declare(store, "tenant", Rate(1, per="1h"), by="group")
    for group in ("a", "b"):
        await add_many(store, 5, group=group)

    await store.override(Override(limit="tenant", kind=Rate(3, per="1h"), group="b"), None)

    groups = groups_of((await claim(store, 10)).jobs)
    assert (groups.count("a"), groups.count("b")) == (1, 3)


async def test_the_operators_numbers_for_all_groups_win_over_declared_ones_for_one(store):
    await declare(store, "tenant", Rate(1, per="1h"), by="group", overrides={"b": Rate(4, per="1h")})
    for group in ("a", "b"):
        await add_many(store, 5, group=group)

    await store.override(Override(limit="tenant", kind=Rate(2, per="1h")), None)

    groups = groups_of((await claim(store, 10)).jobs)
    assert (groups.count("a"), groups.count("b")) == (2, 2)


async def test_the_operators_numbers_for_one_group_win_over_those_for_all(store):
    await declare(store, "tenant", Rate(1, per="1h"), by="group")
    for group in ("a", "b"):
        await add_many(store, 5, group=group)
    await store.override(Override(limit="tenant", kind=Rate(3, per="1h"), group="b"), None)

    await store.override(Override(limit="tenant", kind=Rate(2, per="1h")), None)

    groups = groups_of((await claim(store, 10)).jobs)
    assert (groups.count("a"), groups.count("b")) == (2, 3)


async def test_later_numbers_of_the_operator_replace_earlier_ones(store):
    await declare(store, "all", Rate(1, per="1h"))
    await add_many(store, 9)
    await store.override(Override(limit="all", kind=Rate(3, per="1h")), MINUTE)

    await store.override(Override(limit="all", kind=Rate(2, per="1h")), None)

    assert len((await claim(store, 9)).jobs) == 2
    assert [(each.kind, each.expires_at) for each in await store.overrides()] == [(Rate(2, per="1h"), None)]


async def test_an_unknown_limit_is_an_error_wherever_it_is_named(store):
    calls = [
        lambda: store.override(Override(limit="nobody", kind=Concurrency(1)), None),
        lambda: store.lift("nobody", None),
        lambda: hold(store, "nobody", for_="1s"),
        lambda: store.release("nobody", None),
        lambda: store.usage("nobody", None),
        lambda: store.clear("nobody", None),
        lambda: store.acquire([Target("nobody")], "permit", MINUTE),
    ]

    for call in calls:
        with pytest.raises(ConfigError, match="nobody"):
            await call()
    assert (await claim(store)).ask_again_at == NEVER


# cleared


async def test_a_cleared_limit_forgets_its_starts(store):
    await declare(store, "all", Rate(2, per="1h"))
    await add_many(store, 9)
    await start(store, 2)

    await store.clear("all", None)

    assert len((await claim(store, 9)).jobs) == 2


async def test_a_cleared_limit_keeps_its_live_leases(store):
    await declare(store, "all", Concurrency(2))
    await add_many(store, 9)
    await start(store, 2)

    await store.clear("all", None)

    assert claimed(await claim(store, 9)) == []


async def test_one_group_of_a_limit_may_be_cleared(store):
    await declare(store, "tenant", Rate(1, per="1h"), by="group")
    for group in ("a", "b"):
        await add_many(store, 3, group=group)
    await start(store, 2)

    await store.clear("tenant", "b")

    assert groups_of((await claim(store, 9)).jobs) == ["b"]
