"""Where a job stands (its earliest start is found by the kernel itself), and queues and workers at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.clock import Micros
from paceline.job import JobState
from paceline.limits.admission import Meter, earliest_start
from paceline.stores.interface import Lag, QueueRecord, Standing, Usage, WorkerRecord
from paceline.stores.redis.records import CODES, decode_jobs, decode_usage

_decode = msgspec.msgpack.Decoder().decode


def decode_standing(answer: Sequence[bytes], least_guard: Micros) -> Standing:
    """The standing of a job, and when it can start if all goes well."""
    now, paused, known, keys, trials, ahead, groups = _decode(answer[0])
    job = decode_jobs(answer, now)[0]
    usages = [decode_usage(said) for said in keys]
    waits = job.state in (JobState.WAITING, JobState.DELAYED)
    earliest: Micros | None = None
    if waits:
        meters = [(_meter(usage, trial, least_guard), usage.cost) for usage, trial in zip(usages, trials, strict=True)]
        earliest = earliest_start(meters, ahead, max(now, job.due_at))
    return Standing(
        job=job,
        now=now,
        paused=[f"{what} {name!r}" for what, name in paused],
        known=known,
        keys=usages,
        ahead=ahead,
        groups=groups,
        earliest=earliest,
    )


def _meter(usage: Usage, trial: dict[str, Any], least_guard: Micros) -> Meter:
    """The kernel's meter in the state that the script saw."""
    meter = Meter((usage.limit, usage.group), usage.kind, least_guard)
    cells = [(part, part.load(numbers)) for (part, _), numbers in zip(meter.cells, trial["states"], strict=True)]
    meter._set_cells(cells)
    meter.leases = {str(number) for number in range(trial["in_flight"])}
    meter.hold_until = trial["hold_until"]
    meter.open = trial["open"]
    return meter


def decode_counts(numbers: Sequence[int]) -> dict[str, int]:
    """How many jobs are in each state."""
    return {str(state): numbers[CODES[state] - 1] if state in CODES else 0 for state in JobState}


def decode_queue(said: Sequence[Any]) -> QueueRecord:
    """A queue at a glance."""
    name, counts, groups, paused, tasks, paused_groups = said
    return QueueRecord(
        name=name,
        counts=decode_counts(counts),
        groups=groups,
        paused=paused,
        paused_tasks=tuple(tasks),
        paused_groups=tuple(paused_groups),
    )


def encode_worker(worker: WorkerRecord) -> dict[str, Any]:
    """What the server keeps of a worker."""
    tasks = None if worker.tasks is None else sorted(worker.tasks)
    lags = {task: [lag.p50, lag.p99, lag.late] for task, lag in worker.lags.items()}
    return {"id": worker.id, "queues": list(worker.queues), "tasks": tasks, "lags": lags}


def decode_workers(rows: Sequence[bytes]) -> list[WorkerRecord]:
    """Who works, in the order they came."""
    found = sorted((_decode(row) for row in rows), key=lambda said: said["order"])
    return [
        WorkerRecord(
            id=said["id"],
            queues=tuple(said["queues"]),
            tasks=None if said.get("tasks") is None else frozenset(said["tasks"]),
            seen_at=said["seen_at"],
            lags={task: Lag(*numbers) for task, numbers in (said.get("lags") or {}).items()},
        )
        for said in found
    ]
