"""A limit by name: which jobs meet it, where they are counted, and which limits an outside refusal speaks of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.checks import MAX_NAME
from paceline.limits import Backoff, Concurrency, Delay, Limit, Rate, Unlimited
from paceline.limits.rule import cost_under, limits_to_hold, task_limit

from .strategies import NAMES, any_kinds

KIND = Rate(5, per="1s")
names = st.sampled_from(["a", "b", "c"])
some_names = st.none() | st.frozensets(names, min_size=1)


@st.composite
def limits(draw: st.DrawFn) -> Limit:
    by: Any = draw(st.sampled_from([None, "group"]))
    overrides = draw(st.dictionaries(names, any_kinds, max_size=2)) if by else None
    return Limit(
        draw(names), draw(any_kinds), queues=draw(some_names), tasks=draw(some_names), by=by, overrides=overrides
    )


@given(some_names, some_names, names, names)
def test_a_job_meets_a_limit_that_lists_its_queue_and_its_task_or_does_not_list_any(
    queues: frozenset[str] | None, tasks: frozenset[str] | None, queue: str, task: str
) -> None:
    limit = Limit("limit", KIND, queues=queues, tasks=tasks)
    in_queue = True if queues is None else queue in queues
    of_task = True if tasks is None else task in tasks
    assert limit.meets(queue, task) == (in_queue and of_task)


def test_a_limit_by_group_has_one_counter_for_each() -> None:
    shared, by_group = Limit("shared", KIND), Limit("tenant", KIND, by="group")
    assert shared.key("acme") == shared.key(None) == ("shared", None)
    assert by_group.key("acme") == ("tenant", "acme") != by_group.key("other")


def test_single_groups_may_have_other_numbers() -> None:
    limit = Limit("tenant", KIND, by="group", overrides={"acme": Concurrency(9)})
    assert limit.kind_for("acme") == Concurrency(9)
    assert limit.kind_for("other") == limit.kind_for(None) == KIND


@given(limits(), limits())
def test_two_limits_are_equal_when_they_say_the_same(one: Limit, other: Limit) -> None:
    assert (one == other) == (one.scope == other.scope and one.numbers == other.numbers)
    if one == other:
        assert hash(one) == hash(other)


@given(limits())
def test_what_is_printed_can_be_typed_back_in(limit: Limit) -> None:
    assert eval(repr(limit), dict(NAMES)) == limit


def test_scope_is_what_is_limited_and_numbers_are_how() -> None:
    limit = Limit("mail", KIND, tasks=["send", "digest"])
    assert Limit("mail", KIND, tasks={"digest", "send"}) == limit
    assert Limit("mail", Concurrency(1), tasks=["send", "digest"]).scope == limit.scope
    assert Limit("mail", KIND, tasks=["send", "digest"], backoff=Backoff()).numbers != limit.numbers
    assert Limit("mail", KIND, tasks=["send"]).scope != limit.scope
    assert limit != "mail"


def test_an_outside_refusal_without_a_name_speaks_of_the_limits_that_list_the_task() -> None:
    lists_it = Limit("mail", KIND, tasks=["send"])
    elsewhere = Limit("mail elsewhere", KIND, tasks=["send"], queues=["other"])
    another = Limit("another", KIND, tasks=["fetch"])
    catch_all = Limit("all", KIND)
    whole_queue = Limit("queue", KIND, queues=["q"])
    per_group = Limit("tenant", KIND, tasks=["send"], by="group")
    declared = [lists_it, elsewhere, another, catch_all, whole_queue, per_group]
    assert limits_to_hold(declared, "q", "send", None) == [lists_it]
    assert limits_to_hold(declared, "q", "send", "all") == [catch_all]
    assert limits_to_hold(declared, "q", "send", "tenant") == [per_group]
    assert limits_to_hold(declared, "q", "unknown", None) == limits_to_hold(declared, "q", "send", "nobody") == []


def test_a_refusal_that_fits_no_limit_gets_one_for_this_task_in_this_queue() -> None:
    limit = task_limit("mail", "send")
    assert limit.kind == Unlimited()
    assert limit.meets("mail", "send")
    assert not limit.meets("mail", "digest") and not limit.meets("other", "send")
    assert len(task_limit("q" * MAX_NAME, "t" * MAX_NAME).name) == MAX_NAME


@pytest.mark.parametrize(
    ("cost", "limit", "expected"),
    [(1, "a", 1), (7, "a", 7), ({"a": 7}, "a", 7), ({"a": 7}, "b", 1), ({}, "a", 1)],
)
def test_a_cost_is_one_number_for_all_limits_or_one_for_each(cost: Any, limit: str, expected: int) -> None:
    assert cost_under(cost, limit) == expected


def test_names_are_kept_as_sets_so_that_their_order_means_nothing() -> None:
    limit = Limit("mail", Delay("1s"), queues=("b", "a", "b"))
    assert limit.queues == {"a", "b"}
    assert repr(limit) == "Limit('mail', Delay('1s'), queues=['a', 'b'])"
