"""What every kind of limit can do: plain integers in, plain integers out; no clock, no I/O, no randomness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from paceline.clock import Micros

if TYPE_CHECKING:
    from paceline.limits.composite import AllOf


@dataclass(frozen=True, slots=True)
class Admitted:
    """The start may happen now; charge it next."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The start may not happen before `until` (`NEVER`: not before something finishes)."""

    until: Micros


@runtime_checkable
class Kind(Protocol):
    """A frozen rule. `opens_at` only reads the state of one key, `charge` is the one place that changes it."""

    def __and__(self, other: Kind) -> AllOf: ...

    def parts(self) -> tuple[Part, ...]:
        """The simple kinds it is made of; all of them must admit a start."""
        ...


class Part(Kind, Protocol):
    """A kind that is not made of others."""

    @property
    def word(self) -> str:
        """Its name in stored definitions and in other languages."""
        ...

    def new_state(self) -> Any:
        """The state of a key under which nothing has started."""
        ...

    def opens_at(self, state: Any, in_flight: int, cost: int) -> Micros:
        """The first instant at which a start of this cost is admitted, if nothing else starts before it."""
        ...

    def charge(self, state: Any, cost: int, now: Micros) -> None:
        """Record a start. Also called when the key is full: what happened, happened."""
        ...

    def used(self, state: Any, in_flight: int, now: Micros) -> int:
        """How much of `allowed` is taken now."""
        ...

    @property
    def allowed(self) -> int:
        """The most that can be taken at one time."""
        ...

    def fits(self, cost: int) -> bool:
        """False when a start of this cost can never be admitted."""
        ...

    def forget_after(self, state: Any) -> Micros:
        """From this instant on the state says the same as a new one."""
        ...

    def last_start(self, state: Any) -> Micros:
        """When the last start was, as far as the state tells; -1 if it does not."""
        ...

    def last_cost(self, state: Any) -> int:
        """What was charged at the last start."""
        ...

    def adopt(self, old: Part, state: Any) -> Any:
        """The state to go on with when this kind replaces `old`: starts that still count are kept."""
        ...

    def dump(self, state: Any) -> list[int]:
        """The state as integers, for stores that keep it outside of Python."""
        ...

    def load(self, numbers: list[int]) -> Any:
        """The inverse of `dump`."""
        ...


def admit(kind: Part, state: Any, in_flight: int, cost: int, now: Micros) -> Admitted | Refused:
    """The decision of one kind as a value: what ports to other languages are compared with."""
    until = kind.opens_at(state, in_flight, cost)
    return Refused(until) if until > now else Admitted()


class Combines:
    """Gives a simple kind its `&` and makes it its own only part."""

    __slots__ = ()

    def __and__(self, other: Kind) -> AllOf:
        from paceline.limits.composite import AllOf

        return AllOf(self, other)

    def parts(self) -> tuple[Any, ...]:
        return (self,)
