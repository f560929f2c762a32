"""The records that the server keeps, each field by its name: declared here once, for Python and for the Lua steps.

A record is kept as a list in the order of its fields; False stands for nothing. Fields that only newer records have
come last and may be missing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.clock import Micros
from paceline.job import Backoff

FORMAT = 1
"""What this release writes, said in the head; one that says nothing is of the release before, which wrote the same."""


class Head(msgspec.Struct, array_like=True):
    """The head of a namespace: what every step reads and writes."""

    latest: Micros
    orders: int
    fences: int
    epochs: int
    charges: int
    next_expiry: Micros
    longest: Micros
    late: Micros
    rest: Any = False
    run_id: str | bool = False
    steps: int = 0
    pruned_steps: int = -1
    prune_due: Micros = 0
    is_newborn: bool = False
    born: Micros | bool = False
    format: int = FORMAT


class Body(msgspec.Struct, array_like=True):
    """The part of a job that never changes."""

    queue: str
    task: str
    group: str | None
    priority: int
    cost: int | dict[str, int]
    keep: Micros | None
    unique: str | None
    unique_ttl: Micros | None
    attempts: int
    timeout: Micros | None
    backoff: Backoff | None


class Run(msgspec.Struct, array_like=True):
    """What a start and every step after it changed; the end of a run needs no body because of the last ones."""

    state: int
    attempts_made: int
    crashes: int
    returns: int
    due_at: Micros
    started_at: Micros | bool
    finished_at: Micros | bool
    fence: int
    worker: str | bool
    cancel_asked: bool
    lease_until: Micros = 0
    keys: Any = False
    queue: str = ""
    keep: Any = False
    unique: Any = False
    gate: Any = None
    guard: Any = None


class More(msgspec.Struct, array_like=True):
    """What a handler said and how it ended."""

    progress: float = 0
    message: str | bool = False
    result: str | bool = False
    error: str | bool = False
    logs: tuple[str, ...] = ()


class Meter(msgspec.Struct, array_like=True):
    """One key of a limit; from `hold_until` on only where something is held, refused, reserved, remembered or open."""

    epoch: int
    in_flight: int
    queues: Any
    states: Any
    hold_until: Any = None
    hold_reason: Any = None
    held_at: Any = None
    refusals: Any = None
    reserved_by: Any = None
    reserved_until: Any = None
    reserved_deadline: Any = None
    awaited: Any = None
    memory: Any = None
    open: Any = None


class QueueState(msgspec.Struct, array_like=True):
    """How far a queue has come: its turns, its counts by state, and for each class what waits and what is blocked."""

    virtual_time: int
    filings: int
    counts: Any
    waiting: Any
    blocked_from: Any = False
    saved_at: Any = False
    groups_waiting: Any = False


class Permit(msgspec.Struct, array_like=True):
    """A start that is no job."""

    started_at: Micros
    keys: Any
    gate: Any = None
    again: Any = None


class Start(msgspec.Struct, array_like=True):
    """One line of the log of starts."""

    id: str
    at: Micros
    task: str
    group: str | bool
    cost: Any


AS_LISTS: tuple[type[msgspec.Struct], ...] = (Meter, Body, Run)
"""Every start makes and every end reads these: steps keep them as lists, and know the places of fields by their names.

`STATE` is a place in a run, `BODY_TASK` one in a body; where no run has a field of that name, `TASK` says it too.
"""
RECORDS: dict[str, type[msgspec.Struct]] = {
    "head": Head,
    "more": More,
    "meter": Meter,
    "queue_state": QueueState,
    "permit": Permit,
    "start": Start,
}
"""These are tables with named fields in a step."""
