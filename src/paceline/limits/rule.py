"""A limit by name: which jobs meet it, under which key, with which numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from paceline.checks import MAX_NAME, check_count, check_name
from paceline.clock import Micros
from paceline.errors import require
from paceline.limits.backoff import Backoff
from paceline.limits.composite import AllOf, Unlimited, check_kind, simplified
from paceline.limits.concurrency import Concurrency
from paceline.limits.delay import MICROSECOND, Delay
from paceline.limits.kind import Kind
from paceline.limits.rate import Rate
from paceline.limits.spacing import EvenlySpaced

Cost: TypeAlias = int | Mapping[str, int]
Key: TypeAlias = tuple[str, str | None]
"""One counter of a limit: its name, and the group where it is per group."""


@runtime_checkable
class Named(Protocol):
    """A task or a queue: it is known by its name."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Limit:
    """A named rule: `Limit("email", Rate(120, per="1m"), tasks=["send_email", "send_digest"])`.

    No `queues` and no `tasks`: every job. `by="group"`: one counter per group, never for jobs without one.
    """

    name: str
    kind: Kind
    queues: frozenset[str] | None
    tasks: frozenset[str] | None
    by: Literal["group"] | None
    overrides: Mapping[str, Kind]
    backoff: Backoff | None

    def __init__(
        self,
        name: str,
        kind: Kind,
        *,
        queues: Iterable[str] | None = None,
        tasks: Iterable[str | Named] | None = None,
        by: Literal["group"] | None = None,
        overrides: Mapping[str, Kind] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        require(by in (None, "group"), "by", by, 'None or "group"')
        require(overrides is None or isinstance(overrides, Mapping), "overrides", overrides, "a mapping group → kind")
        require(not overrides or by == "group", "overrides", overrides, 'by="group" beside it')
        require(backoff is None or isinstance(backoff, Backoff), "backoff", backoff, "Backoff(...)")
        object.__setattr__(self, "name", check_name(name, option="name"))
        object.__setattr__(self, "kind", simplified(check_kind(kind, option="kind")))
        object.__setattr__(self, "queues", _names(queues, option="queues"))
        object.__setattr__(self, "tasks", _names(tasks, option="tasks"))
        object.__setattr__(self, "by", by)
        checked = {
            check_name(group, option="overrides"): simplified(check_kind(other, option=f"overrides[{group!r}]"))
            for group, other in (overrides or {}).items()
        }
        object.__setattr__(self, "overrides", checked)
        object.__setattr__(self, "backoff", backoff)

    def __repr__(self) -> str:
        words = [repr(self.name), repr(self.kind)]
        words += [
            f"{option}={sorted(names)!r}" for option, names in (("queues", self.queues), ("tasks", self.tasks)) if names
        ]
        words += [f"{option}={value!r}" for option, value in self._more() if value]
        return f"Limit({', '.join(words)})"

    def _more(self) -> tuple[tuple[str, Any], ...]:
        return ("by", self.by), ("overrides", self.overrides), ("backoff", self.backoff)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limit) and self.scope == other.scope and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash(self.scope)

    @property
    def scope(self) -> tuple[Any, ...]:
        """What it limits: two declarations of one name must agree on this."""
        return self.name, self.queues, self.tasks, self.by

    @property
    def numbers(self) -> tuple[Any, ...]:
        """How it limits: what a later declaration may change."""
        return self.kind, dict(self.overrides), self.backoff

    @property
    def detached(self) -> bool:
        """True when no job meets it: it limits code that asks for it by name."""
        return self.queues is not None and not self.queues

    @classmethod
    def for_code(cls, name: str, kind: Kind, backoff: Backoff | None = None) -> Limit:
        """A limit that no job meets by itself: what a `Limiter` declares."""
        limit = cls(name, kind, backoff=backoff)
        object.__setattr__(limit, "queues", frozenset())
        return limit

    def with_scope_of(self, other: Limit) -> Limit:
        """The same numbers for the jobs that another declaration names."""
        return Limit(
            self.name,
            self.kind,
            queues=other.queues,
            tasks=other.tasks,
            by=other.by,
            overrides=self.overrides or other.overrides,
            backoff=self.backoff or other.backoff,
        )

    def meets(self, queue: str, task: str) -> bool:
        """True when jobs of this task in this queue meet the limit."""
        return (self.queues is None or queue in self.queues) and (self.tasks is None or task in self.tasks)

    def key(self, group: str | None) -> Key:
        """The counter for a job of this group."""
        return self.name, group if self.by == "group" else None

    def kind_for(self, group: str | None) -> Kind:
        """The declared kind of one key."""
        return self.overrides.get(group, self.kind) if group is not None else self.kind


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits for each group of a queue: `GroupLimits(concurrency=2, limiter=Rate(30, per="1m"))`."""

    concurrency: int | None = None
    limiter: Kind | None = None
    kind: Kind = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds: list[Kind] = []
        if self.concurrency is not None:
            kinds.append(Concurrency(check_count(self.concurrency, option="group.concurrency")))
        if self.limiter is not None:
            kinds.append(check_kind(self.limiter, option="group.limiter"))
        require(bool(kinds), "group", self, "a concurrency, a limiter, or both")
        object.__setattr__(self, "kind", kinds[0] if len(kinds) == 1 else AllOf(*kinds))


def limits_to_hold(limits: Iterable[Limit], queue: str, task: str, named: str | None) -> list[Limit]:
    """Which limits an outside refusal speaks of: the one named, else those that list the task."""
    if named is not None:
        return [limit for limit in limits if limit.name == named]
    return [limit for limit in limits if limit.by is None and limit.tasks is not None and limit.meets(queue, task)]


def task_limit(queue: str, task: str) -> Limit:
    """The limit that stands for "this task in this queue" when a refusal fits no declared one."""
    return Limit(f"task:{queue}:{task}"[:MAX_NAME], Unlimited(), queues=[queue], tasks=[task])


def cost_under(cost: Cost, limit: str) -> int:
    """What a job of this cost takes from one limit."""
    return cost if isinstance(cost, int) else cost.get(limit, 1)


KINDS: dict[str, Any] = {"rate": Rate, "concurrency": Concurrency, "delay": Delay, "spacing": EvenlySpaced}
"""The simple kinds by their word: what every port must know."""


def encode_kind(kind: Kind, least_guard: Micros = 0) -> list[dict[str, Any]]:
    """A kind as plain data, for stores: a list of its parts in microseconds, each rate with the guard in force."""
    rows: list[dict[str, Any]] = []
    for part in kind.parts():
        row: dict[str, Any] = {"kind": part.word}
        if isinstance(part, Rate):
            guard = part.in_force(least_guard).guard_us
            row |= {"max": part.max, "per": part.per // MICROSECOND, "guard": guard, "auto": part.guard is None}
        elif isinstance(part, Concurrency):
            row |= {"max": part.max}
        elif isinstance(part, Delay):
            row |= {"gap": part.gap_us}
        elif isinstance(part, EvenlySpaced):
            row |= {"max": part.max, "per": part.per_us}
        rows.append(row)
    return rows


def decode_kind(rows: list[dict[str, Any]]) -> Kind:
    """The inverse of `encode_kind`."""
    kinds = [_decode_part(row) for row in rows]
    if not kinds:
        return Unlimited()
    return kinds[0] if len(kinds) == 1 else AllOf(*kinds)


def encode_limit(limit: Limit, least_guard: Micros = 0) -> dict[str, Any]:
    """A limit as plain data, for stores."""
    backoff = limit.backoff
    return {
        "name": limit.name,
        "kind": encode_kind(limit.kind, least_guard),
        "queues": None if limit.queues is None else sorted(limit.queues),
        "tasks": None if limit.tasks is None else sorted(limit.tasks),
        "by": limit.by,
        "overrides": {group: encode_kind(kind, least_guard) for group, kind in limit.overrides.items()},
        "backoff": backoff and [backoff.initial_us, backoff.multiplier, backoff.maximum_us],
    }


def decode_limit(row: dict[str, Any]) -> Limit:
    """The inverse of `encode_limit`."""
    kind = decode_kind(row["kind"])
    backoff = None
    if row["backoff"]:
        initial, multiplier, maximum = row["backoff"]
        backoff = Backoff(f"{initial}us", multiplier, f"{maximum}us")
    if row["queues"] == []:
        return Limit.for_code(row["name"], kind, backoff)
    overrides = {group: decode_kind(rows) for group, rows in row["overrides"].items()}
    scope = {option: row[option] for option in ("queues", "tasks", "by")}
    return Limit(row["name"], kind, **scope, overrides=overrides, backoff=backoff)


def _decode_part(row: dict[str, Any]) -> Kind:
    options: dict[str, Any] = {name: f"{row[name]}us" for name in ("per", "gap") if name in row}
    if "max" in row:
        options["max"] = row["max"]
    # Earlier releases wrote a guard of 0 where none was given.
    if row.get("guard") is not None and not row.get("auto", row["guard"] == 0):
        options["guard"] = f"{row['guard']}us"
    kind: Kind = KINDS[row["kind"]](**options)
    return kind


def _names(names: Iterable[str | Named] | None, *, option: str) -> frozenset[str] | None:
    if names is None:
        return None
    expected = "a list of names" if option == "queues" else "a list of tasks or of their names"
    require(isinstance(names, Iterable) and not isinstance(names, str), option, names, expected)
    # A task stands for its name: what cannot be misspelt.
    given = [name.name if isinstance(name, Named) else name for name in names]
    checked = frozenset(check_name(name, option=option) for name in given)
    require(bool(checked), option, names, "at least one name, or None for all")
    return checked
