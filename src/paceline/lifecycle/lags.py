"""How long after their starts handlers begin: what people look at when a guard is too short."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from paceline.clock import Micros
from paceline.job import Job
from paceline.limits import Limit
from paceline.stores.interface import Lag, WorkerRecord

KEPT = 1_000
"""Of so many beginnings of each task the lags are remembered."""


class Lags:
    """The lags of each task since its worker began."""

    def __init__(self) -> None:
        self._lags: dict[str, deque[Micros]] = {}
        self._late: dict[str, int] = {}
        self.changed = False

    def add(self, jobs: Sequence[Job[Any]], lag: Micros, is_late: bool) -> None:
        """Handlers of these jobs began."""
        self.changed = True
        for job in jobs:
            task = job.task
            found = self._lags.get(task)
            if found is None:
                found = self._lags[task] = deque(maxlen=KEPT)
                self._late[task] = 0
            found.append(lag)
            if is_late:
                self._late[task] += 1

    def summary(self) -> dict[str, Lag]:
        """What is shown of each task."""
        self.changed = False
        return {task: _summed_up(sorted(lags.copy()), self._late[task]) for task, lags in self._lags.copy().items()}


def lags_under(limit: Limit, workers: Iterable[WorkerRecord]) -> dict[str, Lag]:
    """The lags of the tasks that meet a limit: of each, those of the worker where they are the longest."""
    found: dict[str, Lag] = {}
    for worker in workers:
        for task, lag in worker.lags.items():
            if any(limit.meets(queue, task) for queue in worker.queues):
                known = found.get(task, Lag(0, 0, 0))
                found[task] = Lag(max(known.p50, lag.p50), max(known.p99, lag.p99), known.late + lag.late)
    return found


def _summed_up(lags: list[Micros], late: int) -> Lag:
    return Lag(p50=lags[len(lags) // 2], p99=lags[min(len(lags) * 99 // 100, len(lags) - 1)], late=late)
