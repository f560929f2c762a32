"""No limit at all, and several at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.errors import require
from paceline.limits.kind import Kind


@dataclass(frozen=True, slots=True)
class Unlimited:
    """No restriction: `Unlimited()`."""

    def __and__(self, other: Kind) -> AllOf:
        return AllOf(self, other)

    def __repr__(self) -> str:
        return "Unlimited()"

    def parts(self) -> tuple[Any, ...]:
        return ()


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class AllOf:
    """All of several kinds must admit a start: `Rate(100, per="1m") & Concurrency(5)`."""

    kinds: tuple[Kind, ...]

    def __init__(self, *kinds: Kind) -> None:
        flat: list[Kind] = []
        for kind in kinds:
            check_kind(kind, option="kinds")
            flat.extend(kind.kinds if isinstance(kind, AllOf) else (kind,))
        object.__setattr__(self, "kinds", tuple(flat))

    def __eq__(self, other: object) -> bool:
        # What admits the same is the same: `Unlimited() & kind` is `kind`.
        return isinstance(other, Kind) and not isinstance(other, type) and self.parts() == other.parts()

    def __hash__(self) -> int:
        simple = simplified(self)
        return hash(simple.parts()) if isinstance(simple, AllOf) else hash(simple)

    def __and__(self, other: Kind) -> AllOf:
        return AllOf(self, other)

    def __repr__(self) -> str:
        return f"AllOf({', '.join(map(repr, self.kinds))})"

    def parts(self) -> tuple[Any, ...]:
        return tuple(part for kind in self.kinds for part in kind.parts())


def simplified(kind: Kind) -> Kind:
    """The same kind without what changes nothing, as every store gives it back."""
    parts = kind.parts()
    if not parts:
        return Unlimited()
    return parts[0] if len(parts) == 1 else AllOf(*parts)


def check_kind(kind: object, *, option: str) -> Kind:
    """Refuse what is not a kind, with a hint."""
    expected = 'a kind such as Rate(10, per="1s"), Concurrency(5) or their `&`'
    require(isinstance(kind, Kind) and not isinstance(kind, type), option, kind, expected)
    return kind  # type: ignore[return-value]  # checked in the line above
