"""No limit at all, and several at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.errors import ConfigError
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


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AllOf:
    """All of several kinds must admit a start: `Rate(100, per="1m") & Concurrency(5)`."""

    kinds: tuple[Kind, ...]

    def __init__(self, *kinds: Kind) -> None:
        flat: list[Kind] = []
        for kind in kinds:
            check_kind(kind, option="kinds")
            flat.extend(kind.kinds if isinstance(kind, AllOf) else (kind,))
        object.__setattr__(self, "kinds", tuple(flat))

    def __and__(self, other: Kind) -> AllOf:
        return AllOf(self, other)

    def __repr__(self) -> str:
        return f"AllOf({', '.join(map(repr, self.kinds))})"

    def parts(self) -> tuple[Any, ...]:
        return tuple(part for kind in self.kinds for part in kind.parts())


def check_kind(kind: object, *, option: str) -> Kind:
    """Refuse what is not a kind, with a hint."""
    if isinstance(kind, type) or not isinstance(kind, Kind):
        raise ConfigError(
            f'{option}={kind!r} is wrong: expected a kind such as Rate(10, per="1s"), Concurrency(5) or their `&`',
            option=option,
            value=kind,
        )
    return kind
