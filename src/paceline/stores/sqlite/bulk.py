"""What is done to all jobs of a queue, some thousands in a transaction: others want to write meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from paceline.clock import Micros
from paceline.errors import MoveNotAllowed
from paceline.job import ACTIVE, DELAYED, MOVES, WAITING, JobState, Move
from paceline.limits.turns import joins_at
from paceline.stores.sqlite.needs import moved
from paceline.stores.sqlite.reading import numbers_of
from paceline.stores.sqlite.statements import statements
from paceline.stores.sqlite.unit import Unit
from paceline.stores.steps import manage
from paceline.stores.steps.rows import Row
from paceline.stores.steps.state import State

if TYPE_CHECKING:
    from paceline.stores.sqlite.store import SqliteStore

AT_ONCE = 2_000
PRUNED = 5_000
"""So many finished jobs are removed at once."""
METERS_PRUNED = 1_000
JOBS = statements("jobs")
LANES = statements("lanes")
LIMITS = statements("limits")


async def move_all(store: SqliteStore, queue: str, state: JobState, move: Move) -> int:
    """The same move for every job of a queue in one state."""
    if state not in MOVES[move]:
        raise MoveNotAllowed(queue, state, move)
    return await _in_parts(store, queue, [state], manage.move_rows, state, move)


async def drain(store: SqliteStore, queue: str) -> int:
    """Remove what has not started."""
    return await _in_parts(store, queue, [WAITING, DELAYED], _drain, queue)


async def clean(store: SqliteStore, queue: str, state: JobState, older_than: Micros) -> int:
    """Remove jobs that came into a state longer ago."""
    if state is ACTIVE:
        raise MoveNotAllowed(queue, ACTIVE, "clean")
    return await _in_parts(store, queue, [state], _clean, queue, state, older_than)


async def obliterate(store: SqliteStore, queue: str, force: bool) -> int:
    """Remove the queue; what has finished or not started goes first, the rest in one step."""
    if not force and (await store.counts(queue))[ACTIVE]:
        # Refused before anything was removed.
        return await store._change(manage.obliterate, queue, force)
    removed = await drain(store, queue)
    for state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED):
        removed += await clean(store, queue, state, -1)
    return removed + await store._change(manage.obliterate, queue, force)


async def prune(store: SqliteStore) -> int:
    """Remove finished jobs after their `keep`, old starts, and what idle groups and limits left behind."""
    removed = 0
    while True:
        some = await store._write(_prune)
        removed += some
        if some < PRUNED:
            return removed


async def _in_parts(
    store: SqliteStore, queue: str, states: Sequence[JobState], step: Callable[..., int], *args: Any
) -> int:
    numbers = await store._read(numbers_of, queue, states)
    done = 0
    for first in range(0, len(numbers), AT_ONCE):
        done += await store._write(_part, numbers[first : first + AT_ONCE], step, args)
    return done


def _part(unit: Unit, numbers: list[int], step: Callable[..., int], args: tuple[Any, ...]) -> int:
    rows: list[Row] = []

    def load() -> None:
        rows.extend(unit.loader.rows_numbered(numbers))
        moved(unit, rows)

    return unit.run_with(load, lambda state: step(state, rows, *args))


def _drain(state: State, rows: list[Row], queue: str) -> int:
    return manage.drain_rows(state, queue, rows)


def _clean(state: State, rows: list[Row], queue: str, wanted: JobState, older_than: Micros) -> int:
    return manage.clean_rows(state, queue, rows, wanted, older_than)


def _prune(unit: Unit) -> int:
    now = unit.now()
    found = unit.db.execute(JOBS["kept_too_long"], (unit.space, now, PRUNED)).fetchall()
    removed = _part(unit, [n for (n,) in found], lambda state, rows: manage.remove_rows(state, rows), ())
    queues = unit.lanes.all_queues()
    oldest = now - unit.state.registry.longest_window()
    unit.flush()
    for queue in queues:
        number = unit.numbers[queue]
        values = {"queue": number, "before": oldest, "keep": manage.STARTS_KEPT}
        unit.db.execute(JOBS["forget_starts"], values)
        unit.db.execute(LANES["forget_groups"], (number, joins_at(0, queue.virtual_time)))
    idle = unit.db.execute(LIMITS["idle"], {"space": unit.space, "now": now, "most": METERS_PRUNED}).fetchall()
    unit.db.executemany(LIMITS["drop_spent"], idle)
    unit.db.executemany(LIMITS["drop"], idle)
    unit.outdated = unit.written = True
    return removed
