"""A store at a glance, read once: queues, limits and how full they are, workers."""

from __future__ import annotations

from collections import Counter

import msgspec

from paceline.clock import Micros
from paceline.job import WAITING
from paceline.limits import Limit
from paceline.limits.explain import Usage
from paceline.limits.rate import guard_of
from paceline.stores.interface import Filter, Override, QueueRecord, Store, WorkerRecord


class LimitLine(msgspec.Struct, frozen=True, kw_only=True):
    """One limit: as declared, with the operator's word, and how full its key is."""

    limit: Limit
    usage: Usage
    override: Override | None
    guard: Micros = 0
    """The shortest guard in force of its rates; 0 without one."""
    of_groups: tuple[Override, ...] = ()
    """What an operator set for single groups, where no group was named."""


SEARCHED = 1000
"""So many of the oldest jobs of a queue that have not started are looked at for tasks that nobody knows."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What `status` shows."""

    now: Micros
    queues: list[QueueRecord]
    limits: list[LimitLine]
    workers: list[WorkerRecord]
    unknown: dict[str, dict[str, int]] = {}
    """By queue: tasks that no worker there knows, and how many of its oldest waiting jobs are of them."""


async def look(store: Store, group: str | None = None, *, searched: int = 100) -> Overview:
    """Read everything that `status` shows."""
    queues = await store.queues()
    limits = await limit_lines(store, group)
    workers = await store.workers()
    now = max([store.clock.now(), *(line.usage.now for line in limits)])
    unknown = {queue.name: await _unknown_tasks(store, queue, workers, searched) for queue in queues}
    found = {name: tasks for name, tasks in unknown.items() if tasks}
    return Overview(now=now, queues=queues, limits=limits, workers=workers, unknown=found)


async def _unknown_tasks(
    store: Store, queue: QueueRecord, workers: list[WorkerRecord], searched: int
) -> dict[str, int]:
    """Tasks of waiting jobs that no worker of the queue knows. Their jobs stay, and so are soon among the oldest."""
    crew = [worker for worker in workers if queue.name in worker.queues]
    if not crew or not queue.counts["waiting"] or any(worker.tasks is None for worker in crew):
        return {}
    oldest = await store.find(Filter(queue=queue.name, state=WAITING, limit=searched))
    known = {task for worker in crew for task in worker.tasks or ()}
    return dict(Counter(job.task for job in oldest if job.task not in known))


async def limit_lines(store: Store, group: str | None = None) -> list[LimitLine]:
    """All limits by name; of a per-group limit the key of the group that was named."""
    words = {(word.limit, word.group): word for word in await store.overrides()}
    lines = []
    for limit in sorted(await store.limits(), key=lambda limit: limit.name):
        key = group if limit.by == "group" else None
        usage = await store.usage(limit.name, key)
        word = words.get((limit.name, key)) or words.get((limit.name, None))
        others = tuple(
            each
            for (name, of), each in sorted(words.items(), key=lambda item: item[0][1] or "")
            if name == limit.name and of is not None and group is None
        )
        guard = guard_of(usage.kind, store.least_guard)
        lines.append(LimitLine(limit=limit, usage=usage, override=word, guard=guard, of_groups=others))
    return lines


def scope(limit: Limit) -> str:
    """Which jobs meet a limit, in words."""
    parts = []
    if limit.detached:
        parts.append("code that asks for it")
    if limit.tasks is not None:
        parts.append("tasks " + ", ".join(sorted(limit.tasks)))
    if limit.queues is not None:
        parts.append("queues " + ", ".join(sorted(limit.queues)))
    return ("each group: " if limit.by else "") + ("; ".join(parts) or "every job")
