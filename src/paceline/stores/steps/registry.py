"""The limits by name and their meters: which rules a task meets, with which numbers, counted where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paceline.clock import NEVER, Micros
from paceline.errors import ConfigError
from paceline.limits import Delay, EvenlySpaced, Kind, Limit, Rate
from paceline.limits.admission import Meter
from paceline.limits.rule import Key
from paceline.limits.scopes import Scopes
from paceline.stores.interface import Changed, Override

MINUTE = 60_000_000


class LaneMeter(Meter):
    """A meter that knows whom to tell when it opens: the lanes under it, and whether a sleeper waits for a finish."""

    __slots__ = ("awaited", "lanes")

    def __init__(self, key: Key, kind: Kind, least_guard: Micros) -> None:
        super().__init__(key, kind, least_guard)
        self.lanes: dict[Any, None] = {}
        self.awaited = False


class Registry:
    """Declared limits, operators' overrides, and one meter per key."""

    def __init__(self) -> None:
        self.limits: dict[str, Limit] = {}
        self.overrides: dict[Key, Override] = {}
        self.meters: dict[Key, LaneMeter] = {}
        self.by_limit: dict[str, dict[Key, None]] = {}
        self.reserved: dict[LaneMeter, None] = {}
        self.held_limits: dict[str, tuple[Micros, str | None]] = {}
        self.next_expiry: Micros = NEVER
        self.least_guard: Micros = 0
        """What the store chooses for rates without a guard of their own."""
        self._scopes: Scopes | None = None
        """Made when first needed, until limits change."""

    def take_rules(
        self,
        limits: dict[str, Limit],
        overrides: dict[Key, Override],
        held_limits: dict[str, tuple[Micros, str | None]],
        scopes: Scopes,
    ) -> None:
        """Go by what others have declared, overridden and held."""
        self.limits, self.overrides, self.held_limits = dict(limits), dict(overrides), dict(held_limits)
        self._scopes = scopes
        self._plan_expiry()

    def declare(self, limits: Iterable[Limit]) -> tuple[list[Changed], bool]:
        """Add or change limits; returns what was replaced, and whether other jobs meet other limits now."""
        limits = [reconciled(limit, self.limits.get(limit.name)) for limit in limits]
        for limit in limits:
            old = self.limits.get(limit.name)
            if old is not None and old.scope != limit.scope and not old.detached:
                raise ConfigError(
                    f"limit {limit.name!r} is declared as {old!r} in this store, but now as {limit!r}: "
                    "one name, one scope. Choose another name, or drop the old limit first",
                    option="name",
                    value=limit.name,
                )
        changed, widened = [], False
        for limit in limits:
            old = self.limits.get(limit.name)
            self.limits[limit.name] = limit
            self._scopes = None
            widened |= old is None or old.scope != limit.scope
            if old is not None and old.numbers != limit.numbers:
                changed.append(Changed(old, limit))
                self.renew(limit.name)
        return changed, widened

    def drop(self, name: str) -> bool:
        """Forget a limit, its overrides and its counters."""
        if self.limits.pop(name, None) is None:
            return False
        self._scopes = None
        for key in [key for key in self.overrides if key[0] == name]:
            del self.overrides[key]
        self._plan_expiry()
        self.held_limits.pop(name, None)
        for key in self.by_limit.pop(name, {}):
            meter = self.meters.pop(key)
            self.reserved.pop(meter, None)
        return True

    def meeting(self, queue: str, task: str) -> tuple[Limit, ...]:
        """The limits that jobs of this task in this queue meet, in order of their names."""
        return self.scopes.meeting(queue, task)

    @property
    def scopes(self) -> Scopes:
        """Which limits each task meets."""
        if self._scopes is None:
            self._scopes = Scopes(self.limits.values())
        return self._scopes

    def kind(self, name: str, group: str | None) -> Kind:
        """The numbers of one key: the operator's word first, then what code declared."""
        for key in ((name, group), (name, None)):
            override = self.overrides.get(key)
            if override is not None:
                return override.kind
        return self.limits[name].kind_for(group)

    def beneath(self, name: str, group: str | None) -> list[Kind]:
        """The numbers of one key that rule again when an operator's word ends."""
        said = [self.overrides.get(key) for key in dict.fromkeys(((name, group), (name, None)))]
        kinds = [each.kind for each in said if each is not None]
        return [*kinds[1:], self.limits[name].kind_for(group)] if kinds else []

    def meter(self, name: str, group: str | None) -> LaneMeter:
        """The meter of one key, made when first needed."""
        key = (name, group)
        meter = self.meters.get(key)
        if meter is None:
            meter = self.meters[key] = self.new_meter(key)
            self.by_limit.setdefault(name, {})[key] = None
        return meter

    def known(self, key: Key) -> LaneMeter | None:
        """The meter of a key if it is at hand."""
        return self.meters.get(key)

    def new_meter(self, key: Key) -> LaneMeter:
        """A meter that counted nothing; one of a limit that is held for all its groups is held too."""
        meter = LaneMeter(key, self.kind(*key), self.least_guard)
        meter.change(meter.kind, self.beneath(*key))
        meter.hold_until, meter.hold_reason = self.held_limits.get(key[0], (0, None))
        return meter

    def forget_starts(self, meter: LaneMeter) -> None:
        """Let a key count from nothing; its hold stays."""
        meter.forget_starts()
        meter.change(meter.kind, self.beneath(*meter.key))

    def hold_all(self, name: str, until: Micros, reason: str | None) -> None:
        """Hold every group of a limit, those too that nobody has used yet."""
        known = self.held_limits.get(name)
        if known is None or until > known[0]:
            self.held_limits[name] = (until, reason)

    def release_all(self, name: str) -> None:
        """Lift the hold of every group."""
        self.held_limits.pop(name, None)

    def knows(self, meter: LaneMeter) -> bool:
        """False when the limit was dropped meanwhile."""
        return self.meters.get(meter.key) is meter

    def meters_of(self, name: str) -> list[LaneMeter]:
        """All meters of one limit that exist now."""
        return [self.meters[key] for key in self.by_limit.get(name, ())]

    def require(self, name: str) -> Limit:
        """The limit of this name, or an error that lists those that exist."""
        limit = self.limits.get(name)
        if limit is None:
            known = ", ".join(sorted(self.limits)) or "none"
            raise ConfigError(f"there is no limit {name!r}; declared are: {known}", option="limit", value=name)
        return limit

    def require_key(self, name: str, group: str | None) -> LaneMeter:
        """The meter of a key somebody named: a per-group limit needs a group, another one has none."""
        limit = self.require(name)
        if not limit.detached and (limit.by == "group") != (group is not None):
            wanted = "a group, because the limit is per group" if limit.by else "no group: the limit is not per group"
            raise ConfigError(
                f"limit {name!r} with group={group!r} is wrong: expected {wanted}", option="group", value=group
            )
        return self.meter(name, group)

    def renew(self, name: str) -> None:
        """Give the meters of a limit the numbers that hold now."""
        for meter in self.meters_of(name):
            group = meter.key[1]
            meter.change(self.kind(name, group), self.beneath(name, group))

    def override(self, override: Override) -> None:
        """Set an operator's numbers."""
        self.require(override.limit)
        self.overrides[override.limit, override.group] = override
        self._plan_expiry()
        self.renew(override.limit)

    def lift(self, name: str, group: str | None) -> bool:
        """Take an operator's numbers back."""
        if self.overrides.pop((name, group), None) is None:
            return False
        self._plan_expiry()
        self.renew(name)
        return True

    def expire(self, now: Micros) -> list[str]:
        """Lift the overrides whose time is over; returns the limits that changed."""
        over = [
            key for key, found in self.overrides.items() if found.expires_at is not None and found.expires_at <= now
        ]
        for name, group in over:
            self.lift(name, group)
        return [name for name, _ in over]

    def longest_window(self) -> Micros:
        """How far back a decision can look; at least a minute, so that people can look too."""
        longest = MINUTE
        kinds = [limit.kind for limit in self.limits.values()]
        kinds += [kind for limit in self.limits.values() for kind in limit.overrides.values()]
        kinds += [override.kind for override in self.overrides.values()]
        for kind in kinds:
            for part in kind.parts():
                if isinstance(part, Rate):
                    longest = max(longest, part.in_force(self.least_guard).window)
                elif isinstance(part, Delay):
                    longest = max(longest, part.gap_us)
                elif isinstance(part, EvenlySpaced):
                    longest = max(longest, part.per_us)
        return longest

    def forget_idle(self, now: Micros) -> int:
        """Drop meters of groups that a new one could replace."""
        idle = [m for m in self.meters.values() if m.key[1] is not None and not m.lanes and m.forgettable(now)]
        for meter in idle:
            del self.meters[meter.key]
            del self.by_limit[meter.key[0]][meter.key]
        return len(idle)

    def _plan_expiry(self) -> None:
        times = [found.expires_at for found in self.overrides.values() if found.expires_at is not None]
        self.next_expiry = min(times, default=NEVER)


def reconciled(limit: Limit, old: Limit | None) -> Limit:
    """A limiter's declaration names no jobs: it keeps the scope that the limit of its name has."""
    if limit.detached and old is not None and not old.detached:
        return limit.with_scope_of(old)
    return limit
