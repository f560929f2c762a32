"""Turns between groups: nobody is passed twice, newcomers go behind, and waiting is neither debt nor credit."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from paceline.limits.turns import ONE, after_start, joins_at

GROUPS = "abcd"


@dataclass
class Tenant:
    waiting: int = 0
    turn: int = 0
    filed: int = 0
    blocked: bool = False


@dataclass
class Queue:
    """The smallest queue that takes turns: one counter of jobs for each group."""

    tenants: dict[str, Tenant] = field(default_factory=lambda: {name: Tenant() for name in GROUPS})
    virtual_time: int = 0
    filings: int = 0

    def add(self, name: str) -> None:
        tenant = self.tenants[name]
        if tenant.waiting == 0:
            self.filings += 1
            tenant.turn, tenant.filed = joins_at(tenant.turn, self.virtual_time), self.filings
        tenant.waiting += 1

    def start(self, cost: int = 1) -> str | None:
        able = [name for name, tenant in self.tenants.items() if tenant.waiting and not tenant.blocked]
        if not able:
            return None
        name = min(able, key=lambda name: (self.tenants[name].turn, self.tenants[name].filed))
        tenant = self.tenants[name]
        self.virtual_time = max(self.virtual_time, tenant.turn)
        tenant.turn = after_start(tenant.turn, self.virtual_time, cost)
        self.filings += 1
        tenant.filed = self.filings
        tenant.waiting -= 1
        return name


events = st.lists(
    st.tuples(st.sampled_from(["add", "add", "block", "start", "start", "start"]), st.sampled_from(GROUPS)),
    max_size=120,
)


@given(events)
def test_while_a_group_is_eligible_every_other_one_starts_at_most_once_before_it(
    happened: list[tuple[str, str]],
) -> None:
    queue = Queue()
    passed: dict[str, list[str]] = {name: [] for name in GROUPS}  # who went first since the group could have started
    for event, name in happened:
        if event == "add":
            queue.add(name)
        elif event == "block":
            queue.tenants[name].blocked ^= True
        elif (started := queue.start()) is not None:
            passed[started] = []
            for other in GROUPS:
                if other != started:
                    passed[other].append(started)
        for other, tenant in queue.tenants.items():
            if tenant.blocked or not tenant.waiting:
                passed[other] = []
            assert len(set(passed[other])) == len(passed[other]), f"{other} was passed by {passed[other]}"


def test_a_group_that_arrives_goes_behind_those_who_wait() -> None:
    queue = Queue()
    for name in "aabb":
        queue.add(name)
    assert queue.start() == "a"
    queue.add("c")
    assert [queue.start() for _ in range(4)] == ["b", "a", "c", "b"]


def test_a_group_with_a_large_backlog_takes_no_more_turns_than_a_small_one() -> None:
    queue = Queue()
    for _ in range(100):
        queue.add("a")
    for name in "bcd" * 3:
        queue.add(name)
    assert [queue.start() for _ in range(12)] == list("abcd" * 3)


def test_leaving_and_coming_back_wins_nothing() -> None:
    queue = Queue()
    for _ in range(20):
        queue.add("a")
    started = []
    for _ in range(20):
        if queue.tenants["b"].waiting == 0:
            queue.add("b")
        started.append(queue.start())
    assert started == ["a", "b"] * 10


def test_time_spent_blocked_is_no_credit() -> None:
    queue = Queue()
    for _ in range(40):
        queue.add("a")
        queue.add("b")
    queue.tenants["b"].blocked ^= True
    assert [queue.start() for _ in range(10)] == ["a"] * 10
    queue.tenants["b"].blocked ^= True
    assert [queue.start() for _ in range(6)] == ["b", "a", "b", "a", "b", "a"]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.lists(st.integers(1, 5), min_size=1, max_size=40))
def test_backlogged_groups_share_by_cost_and_not_by_number(first: list[int], second: list[int]) -> None:
    queue, taken, costs = Queue(), {"a": 0, "b": 0}, {"a": list(first), "b": list(second)}
    for name in "ab":
        for _ in range(41):
            queue.add(name)
    while costs["a"] and costs["b"]:
        able = min("ab", key=lambda name: (queue.tenants[name].turn, queue.tenants[name].filed))
        cost = costs[able].pop(0)
        assert queue.start(cost) == able
        taken[able] += cost
        assert abs(taken["a"] - taken["b"]) <= 5


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 100))
def test_turns_only_grow(own: int, virtual_time: int, cost: int) -> None:
    assert joins_at(own, virtual_time) >= max(own, virtual_time + ONE)
    assert after_start(own, virtual_time, cost) == max(own, virtual_time) + cost * ONE
    assert after_start(own, virtual_time, cost, weight=2) == max(own, virtual_time) + cost * ONE // 2
