"""Limits by task: the same ones as by asking each limit, found without asking those of other tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.limits import Limit, Rate
from paceline.limits.scopes import Scopes

KIND = Rate(1, per="1s")
SOME = st.none() | st.lists(st.sampled_from("abc"), min_size=1)
LIMITS = st.lists(st.builds(lambda queues, tasks: (queues, tasks), SOME, SOME), max_size=8)


@given(scopes=LIMITS, queue=st.sampled_from("abc"), task=st.sampled_from("abcd"))
def test_a_task_meets_the_limits_that_name_it_and_those_that_name_none_in_order_of_their_names(scopes, queue, task):
    numbered = zip(range(9, 0, -1), scopes, strict=False)
    limits = [Limit(f"limit {number}", KIND, queues=queues, tasks=tasks) for number, (queues, tasks) in numbered]
    limits.append(Limit.for_code("for code", KIND))

    met = Scopes(limits).meeting(queue, task)

    assert [limit.name for limit in met] == sorted(limit.name for limit in limits if limit.meets(queue, task))


def test_limits_of_other_tasks_are_not_asked(monkeypatch):
    limits = [Limit(f"of {number}", KIND, tasks=[f"task {number}"]) for number in range(1000)]
    scopes = Scopes([*limits, Limit("all", KIND)])
    asked: list[str] = []
    meets = Limit.meets
    monkeypatch.setattr(Limit, "meets", lambda limit, *about: asked.append(limit.name) or meets(limit, *about))

    assert [limit.name for limit in scopes.meeting("line", "task 7")] == ["all", "of 7"]
    assert sorted(asked) == ["all", "of 7"]
