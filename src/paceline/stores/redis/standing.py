"""Where a job stands, from what the script saw: the earliest start is found by the kernel itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.clock import Micros
from paceline.job import JobState
from paceline.limits.admission import Meter, earliest_start
from paceline.stores.interface import Standing, Usage
from paceline.stores.redis.records import decode_jobs, decode_usage

_decode = msgspec.msgpack.Decoder().decode


def decode_standing(answer: Sequence[bytes]) -> Standing:
    """The standing of a job, and when it can start if all goes well."""
    now, paused, known, keys, trials, ahead, groups = _decode(answer[0])
    job = decode_jobs(answer, now)[0]
    usages = [decode_usage(said) for said in keys]
    waits = job.state in (JobState.WAITING, JobState.DELAYED)
    earliest: Micros | None = None
    if waits:
        meters = [(_meter(usage, trial), usage.cost) for usage, trial in zip(usages, trials, strict=True)]
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


def _meter(usage: Usage, trial: dict[str, Any]) -> Meter:
    """The kernel's meter in the state that the script saw."""
    meter = Meter((usage.limit, usage.group), usage.kind)
    cells = [(part, part.load(numbers)) for (part, _), numbers in zip(meter.cells, trial["states"], strict=True)]
    meter._set_cells(cells)
    meter.leases = {str(number) for number in range(trial["in_flight"])}
    meter.hold_until = trial["hold_until"]
    return meter
