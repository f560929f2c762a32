"""One key of a limit, and the rule of the claim: check all keys of a job, then charge all or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.clock import NEVER, Micros
from paceline.limits.backoff import Backoff
from paceline.limits.concurrency import Concurrency
from paceline.limits.kind import Kind, Part
from paceline.limits.memory import Cell, go_on, remember
from paceline.limits.rate import Rate, Window
from paceline.limits.rule import Key

DEFAULT_BACKOFF = Backoff()
SIMULATED = 10_000
"""So many starts ahead are walked one by one; beyond that the earliest start is a lower bound."""


class Leases(Protocol):
    """The live leases under one key: a set, or the count of one that is kept elsewhere."""

    def __len__(self) -> int: ...

    def add(self, holder: str, /) -> None: ...

    def discard(self, holder: str, /) -> None: ...


class Meter:
    """What is counted under one key: the states of its kinds, the live leases, the hold, a big job's reservation."""

    __slots__ = (
        "cells",
        "charged",
        "closed_until",
        "counts_leases",
        "guard",
        "held_at",
        "hold_reason",
        "hold_until",
        "key",
        "kind",
        "leases",
        "least_guard",
        "lone",
        "memory",
        "open",
        "refusals",
        "reserved_by",
        "reserved_deadline",
        "reserved_until",
        "slots",
        "timed",
    )

    def __init__(self, key: Key, kind: Kind, least_guard: Micros = 0) -> None:
        self.key = key
        self.kind = kind
        self.least_guard = least_guard
        """The shortest guard that the store chooses for a rate without one of its own."""
        self.open = 0
        """The cost of starts whose handlers may begin at any moment: every window counts it."""
        self.cells: list[Cell] = []
        """Each simple kind with the state it keeps for this key."""
        self.memory: Cell | None = None
        """What earlier kinds counted and none of these does; it is charged and never asked."""
        self._set_cells([(part, part.new_state()) for part in self.in_force(kind)])
        self.leases: Leases = set()
        self.hold_until: Micros = 0
        self.hold_reason: str | None = None
        self.held_at: Micros = 0
        self.closed_until: Micros = 0
        """Known to refuse every start before this instant; starts only make it later, so it needs no new look."""
        self.refusals = 0
        self.reserved_by: str | None = None
        self.reserved_until: Micros = 0
        self.reserved_deadline: Micros = 0

    def opens_at(self, cost: int) -> Micros:
        """The first instant at which this key admits a start of this cost."""
        in_flight = len(self.leases)
        if in_flight >= self.slots:
            return NEVER
        at = self.hold_until
        cost += self.open
        for part, state in self.timed:
            until = part.opens_at(state, in_flight, cost)
            if until > at:
                at = until
        return at

    def in_force(self, kind: Kind) -> list[Part]:
        """The simple kinds of a kind, each rate with its guard."""
        return [part.in_force(self.least_guard) if isinstance(part, Rate) else part for part in kind.parts()]

    @property
    def parts(self) -> list[Part]:
        """The simple kinds of this key."""
        return [part for part, _ in self.cells]

    @property
    def kept(self) -> list[Cell]:
        """All that is counted, whether it decides or not."""
        return self.cells if self.memory is None else [*self.cells, self.memory]

    def _set_cells(self, cells: list[Cell], memory: Cell | None = None) -> None:
        self.cells = cells
        self.memory = memory
        # Looked at on every start: slots that leases take, and kinds that only the time of starts matters to.
        self.slots = min((part.max for part, _ in cells if isinstance(part, Concurrency)), default=NEVER)
        self.timed = [(part, state) for part, state in cells if not isinstance(part, Concurrency)]
        self.charged = self.timed if memory is None else [*self.timed, memory]
        # When only the beginnings matter, a permit holds nothing and needs no lease.
        self.counts_leases = self.slots < NEVER
        guards = [part.guard_us for part, _ in cells if isinstance(part, Rate)]
        self.guard: Micros = min((guard for guard in guards if guard), default=NEVER)
        """A handler that begins later than this after its start asks first."""
        self.lone = cells[0] if len(cells) == 1 and not self.counts_leases and memory is None else None
        """The only kind of this key, where nothing is held: most limiters are of this sort."""

    def opens_in_time(self, cost: int) -> Micros:
        """The same as far as time decides: a slot that is taken may be free at any moment."""
        return max([self.hold_until, *(part.opens_at(state, 0, cost + self.open) for part, state in self.timed)])

    def admits_late(self, cost: int, now: Micros) -> bool:
        """True when holds and windows admit a start now whose slot and spacing were decided before."""
        cost += self.open
        windows = [part.opens_at(state, 0, cost) for part, state in self.cells if isinstance(part, Rate)]
        return max([self.hold_until, *windows]) <= now

    def charge(self, holder: str, cost: int, now: Micros) -> None:
        """Count a start and the lease that goes with it."""
        self.leases.add(holder)
        self.count(cost, now)
        if self.reserved_by is not None and self.reserved_by == holder:
            self.reserved_by = None

    def count(self, cost: int, now: Micros) -> None:
        """Count a start that holds no lease."""
        self.closed_until = 0
        for part, state in self.charged:
            part.charge(state, cost, now)

    def _logs(self) -> list[tuple[Rate, Window]]:
        """What counts starts one by one."""
        return [(part, state) for part, state in self.charged if isinstance(part, Rate)]

    def take_out(self, cost: int, at: Micros) -> None:
        """Undo what a start that happened at this instant took from windows."""
        self.closed_until = 0
        for part, state in self._logs():
            part.take_out(state, cost, at)

    def open_up(self, cost: int) -> None:
        """Count a start in every window until its handler has begun."""
        self.closed_until = 0
        self.open += cost

    def begin(self, cost: int, at: Micros) -> None:
        """Count a start where its handler began: now, or a little while ago."""
        self.closed_until = 0
        for part, state in self._logs():
            part.put_in(state, cost, at)

    def lacks_only_room(self, cost: int, now: Micros) -> bool:
        """True when a start is refused for its size alone: a smaller one would be admitted now."""
        return cost > 1 and self.opens_at(1) <= now < self.opens_at(cost) < NEVER

    def lacks_only_time(self, cost: int, now: Micros) -> bool:
        """True when only windows refuse: no hold, no gap, no missing slot."""
        others = [part.opens_at(state, 0, cost) for part, state in self.timed if not isinstance(part, Rate)]
        return len(self.leases) < self.slots and max([self.hold_until, *others]) <= now

    def reserve(self, job_id: str, cost: int, now: Micros) -> None:
        """Keep the room free for a job that does not fit yet, for one window at most: by then it fits."""
        self.reserved_by = job_id
        self.reserved_deadline = now + max((part.window for part in self.parts if isinstance(part, Rate)), default=0)
        # Starts that are open leave at an instant that nobody knows.
        self.reserved_until = min(self.opens_at(cost), self.reserved_deadline)

    def fits(self, cost: int) -> bool:
        """False when a start of this cost can never be admitted."""
        return all(part.fits(cost) for part in self.parts)

    def most(self) -> int:
        """The largest cost that is ever admitted."""
        return min((part.max for part in self.parts if isinstance(part, Rate)), default=NEVER)

    def change(self, kind: Kind, beneath: Sequence[Kind] = ()) -> None:
        """Go on under other numbers without forgetting the starts that still count.

        `beneath` are the kinds that rule again when an operator's word ends: their starts are counted meanwhile.
        """
        same = kind == self.kind
        if same and not beneath:
            return
        parts = self.in_force(kind)
        old = [(part, state) for part, state in self.kept if part.last_start(state) >= 0]
        others = [part for part, _ in old] + [
            part for each in beneath for part in self.in_force(each) if part.word != "concurrency"
        ]
        log = remember(parts, others, may_be_forgotten=self.key[1] is not None)
        if same and log == (self.memory and self.memory[0]):
            return
        cells = self.cells if same else [(part, go_on(part, old)) for part in parts]
        self._set_cells(cells, None if log is None else (log, go_on(log, old)))
        if not same:
            self.kind = kind
            self.closed_until = 0
            self.reserved_by = None

    def hold(self, until: Micros, now: Micros, reason: str | None = None) -> None:
        """Let nobody start before the instant. A hold only ever grows."""
        self.held_at = now
        self.closed_until = 0
        if until > self.hold_until:
            self.hold_until = until
            self.hold_reason = reason

    def refuse(
        self,
        backoff: Backoff | None,
        jitter: float,
        now: Micros,
        reason: str | None = None,
        started_at: Micros | None = None,
    ) -> None:
        """Hold after an outside refusal without a time; each one in a row holds longer."""
        if started_at is not None and self.refusals and started_at <= self.held_at:
            # It ran already when the hold was made: the same refusal, heard once more.
            return
        self.refusals += 1
        self.hold(now + (backoff or DEFAULT_BACKOFF).hold_for(self.refusals, jitter), now, reason)

    def release(self) -> None:
        """Lift the hold; what was counted stays."""
        self.hold_until = 0
        self.hold_reason = None
        self.closed_until = 0
        self.refusals = 0

    def succeeded(self, started_at: Micros) -> None:
        """A job that started after the hold went well: the next refusal is the first in a row again."""
        if started_at > self.held_at:
            self.refusals = 0

    def forget_starts(self) -> None:
        """Count from nothing; live leases and the hold stay."""
        self._set_cells([(part, part.new_state()) for part in self.parts])
        self.closed_until = 0
        self.reserved_by = None

    def clear(self) -> None:
        """Forget starts and holds; live leases stay."""
        self.forget_starts()
        self.release()

    def used_and_allowed(self, now: Micros) -> tuple[int, int | None]:
        """How full the key is, by its fullest part; (0, None) when nothing limits it."""
        in_flight = len(self.leases)
        pairs = [
            (part.used(state, in_flight, now) + (self.open if isinstance(part, Rate) else 0), part.allowed)
            for part, state in self.cells
        ]
        return max(pairs, key=lambda pair: pair[0] / pair[1], default=(in_flight, None))

    def forgettable(self, now: Micros) -> bool:
        """True when a new meter would decide the same from now on."""
        if self.leases or self.refusals or self.hold_until > now or self.reserved_by is not None:
            return False
        return all(part.forget_after(state) <= now for part, state in self.kept)


def opens_at(keys: Sequence[tuple[Meter, int]]) -> Micros:
    """The first instant at which all keys admit a start: each, once open, stays open until the next start."""
    return max((meter.opens_at(cost) for meter, cost in keys), default=0)


def charge(keys: Sequence[tuple[Meter, int]], holder: str, now: Micros) -> None:
    """Charge a start to every key; only called after all of them admitted it (or when it happened anyway)."""
    for meter, cost in keys:
        meter.charge(holder, cost, now)


def earliest_start(keys: Sequence[tuple[Meter, int]], ahead: int, now: Micros) -> Micros | None:
    """When a job can start if `ahead` others of cost 1 go first and all go as early as they may.

    None when a slot is missing (nobody knows when one is free), or when the job can never fit.
    """
    if any(len(meter.leases) >= meter.slots or not meter.fits(cost) for meter, cost in keys):
        return None
    trial = [(part, part.load(part.dump(state)), cost) for meter, cost in keys for part, state in meter.timed]
    opened = [meter.open for meter, _ in keys for _ in meter.timed]
    for (part, state, _), cost in zip(trial, opened, strict=True):
        if cost and isinstance(part, Rate):
            # Handlers that may begin at any moment begin now at the earliest.
            part.charge(state, cost, now)
    at = max([now, *(meter.hold_until for meter, _ in keys)])
    for _ in range(min(ahead, SIMULATED)):
        at = max([at, *(part.opens_at(state, 0, 1) for part, state, _ in trial)])
        for part, state, _ in trial:
            part.charge(state, 1, at)
    at = max([at, *(part.opens_at(state, 0, cost) for part, state, cost in trial)])
    return at if at < NEVER else None
