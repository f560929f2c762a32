"""Limits by the tasks they name: finding those of one task costs what it meets, however many limits there are."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from paceline.limits.rule import Limit


class Scopes:
    """The limits of a namespace as they were when this was made."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._by_task: dict[str, list[Limit]] = {}
        self._of_all_tasks: list[Limit] = []
        self._met: dict[tuple[str, str], tuple[Limit, ...]] = {}
        for limit in limits:
            if limit.tasks is None:
                self._of_all_tasks.append(limit)
            else:
                for task in limit.tasks:
                    self._by_task.setdefault(task, []).append(limit)

    def meeting(self, queue: str, task: str) -> tuple[Limit, ...]:
        """The limits that jobs of this task in this queue meet, in order of their names."""
        met = self._met.get((queue, task))
        if met is None:
            named = self._by_task.get(task, [])
            found = [limit for limit in (*named, *self._of_all_tasks) if limit.meets(queue, task)]
            met = self._met[queue, task] = tuple(sorted(found, key=attrgetter("name")))
        return met
