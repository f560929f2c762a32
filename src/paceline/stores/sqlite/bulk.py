"""What is done to all jobs of a queue, some thousands in a transaction: others want to write meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from paceline.clock import Micros
from paceline.errors import MoveNotAllowed
from paceline.job import ACTIVE, DELAYED, MOVES, WAITING, JobState, Move
from paceline.stores.sqlite.state import SqliteState
from paceline.stores.steps import manage

if TYPE_CHECKING:
    from paceline.stores.sqlite.store import SqliteStore

AT_ONCE = 2_000


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
    await store._look(_refuse_active, queue, force)
    removed = await drain(store, queue)
    for state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED):
        removed += await clean(store, queue, state, -1)
    return removed + await store._change(manage.obliterate, queue, force)


async def _in_parts(
    store: SqliteStore, queue: str, states: Sequence[JobState], step: Callable[..., int], *args: Any
) -> int:
    numbers = await store._look(_numbers, queue, states)
    done = 0
    for first in range(0, len(numbers), AT_ONCE):
        done += await store._change(_part, numbers[first : first + AT_ONCE], step, args)
    return done


def _numbers(state: SqliteState, queue: str, states: Sequence[JobState]) -> list[int]:
    line, now = state.lines.get(queue), state.now()
    return [] if line is None else [number for seen in states for number in state.numbers_of(line, seen, now)]


def _part(state: SqliteState, numbers: list[int], step: Callable[..., int], args: tuple[Any, ...]) -> int:
    return step(state, state.rows_by_number(numbers), *args)


def _drain(state: SqliteState, rows: Any, queue: str) -> int:
    return manage.drain_rows(state, queue, rows)


def _clean(state: SqliteState, rows: Any, queue: str, wanted: JobState, older_than: Micros) -> int:
    return manage.clean_rows(state, queue, rows, wanted, older_than)


def _refuse_active(state: SqliteState, queue: str, force: bool) -> None:
    line = state.lines.get(queue)
    if line is not None and not force:
        manage.refuse_active(line)
