"""What crosses between Python's records and the database's rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from paceline.clock import NEVER, Micros
from paceline.job import ACTIVE, DELAYED, WAITING, Backoff, JobRecord, JobState, NewJob
from paceline.limits import Backoff as HoldBackoff
from paceline.limits import Limit
from paceline.limits.rule import decode_kind, encode_kind
from paceline.stores.interface import Failed, Finish, Hold, Lag, QueueRecord, WorkerRecord
from paceline.stores.postgres.arrays import BIGINT, BOOLEAN, BYTEA, INT, TEXT
from paceline.stores.postgres.faults import STATES

_backoff = msgspec.json.Decoder(Backoff)
_encode = msgspec.json.Encoder().encode


JOB_KINDS = (
    *(TEXT, INT, TEXT, BYTEA, TEXT, BIGINT, BIGINT, BIGINT, BIGINT, BOOLEAN, INT, TEXT, BIGINT, BIGINT, TEXT, BIGINT),
    *(TEXT, BIGINT),
)
FINISH_KINDS = (TEXT, BIGINT, TEXT, BYTEA, TEXT, BIGINT, BIGINT, BOOLEAN, TEXT)


def backoff_text(backoff: Backoff | None) -> str | None:
    """A backoff as the database keeps it."""
    return None if backoff is None else _encode(backoff).decode()


def job_columns(jobs: Sequence[NewJob], queues: dict[str, int]) -> list[list[Any]]:
    """New jobs as the parallel arrays that `insert_jobs` takes, from `p_ids` on; what all have in common, once."""
    return [
        [job.id for job in jobs],
        _once([queues[job.queue] for job in jobs]),
        _once([job.task for job in jobs]),
        [job.data for job in jobs],
        [job.group for job in jobs],
        [job.group_max_size for job in jobs],
        _once([job.delay for job in jobs]),
        [job.due_at for job in jobs],
        _once([job.priority for job in jobs]),
        _once([job.lifo for job in jobs]),
        _once([job.attempts for job in jobs]),
        _once([backoff_text(job.backoff) for job in jobs]),
        _once([job.timeout for job in jobs]),
        _once([job.cost if isinstance(job.cost, int) else 1 for job in jobs]),
        [None if isinstance(job.cost, int) else json.dumps(job.cost) for job in jobs],
        _once([job.keep for job in jobs]),
        [job.unique for job in jobs],
        [job.unique_ttl for job in jobs],
    ]


def _once(column: list[Any]) -> list[Any]:
    return column[:1] if column.count(column[0]) == len(column) else column


def new_record(job: NewJob, seq: int, now: Micros) -> JobRecord:
    """A job as it is right after it was added."""
    due_at = now + job.delay if job.due_at is None else max(job.due_at, now)
    return JobRecord(
        id=job.id,
        queue=job.queue,
        task=job.task,
        data=job.data,
        group=job.group,
        state=DELAYED if due_at > now else WAITING,
        priority=job.priority,
        order=-seq if job.lifo else seq,
        attempts=job.attempts,
        cost=job.cost,
        timeout=job.timeout,
        backoff=job.backoff,
        keep=job.keep,
        unique=job.unique,
        unique_until=None if job.unique_ttl is None else now + job.unique_ttl,
        created_at=now,
        due_at=due_at,
    )


def record(row: Sequence[Any]) -> JobRecord:
    """A job as the function `records` gives it."""
    return JobRecord(
        row[0],
        row[1],
        row[2],
        row[3],
        row[4],
        STATES[row[5] - 1],
        row[6],
        row[7],
        row[8],
        row[9],
        row[10],
        row[11],
        row[12] if row[13] is None else json.loads(row[13]),
        row[14],
        None if row[15] is None else _backoff.decode(row[15]),
        row[16],
        row[17],
        row[18],
        row[19],
        row[20],
        row[21],
        row[22],
        row[23],
        row[24],
        row[25],
        row[26],
        () if row[27] is None else tuple(row[27]),
        row[28],
        row[29],
        row[30],
    )


def started(columns: Sequence[Sequence[Any]], queues: dict[int, str], now: Micros, worker: str) -> list[JobRecord]:
    """Jobs as a claim gives them, in columns: what is as usual is not said."""
    guards = columns[13] or [NEVER] * len(columns[0])
    jobs = [
        JobRecord(
            id=id,
            queue=queues[queue],
            task=task,
            data=data,
            group=group,
            state=ACTIVE,
            priority=priority,
            order=order,
            attempts=attempts,
            attempts_made=1,
            keep=keep,
            created_at=created_at,
            due_at=due_at,
            started_at=now,
            fence=fence,
            worker=worker,
            guard=guard,
        )
        for id, queue, task, data, group, priority, order, attempts, keep, created_at, due_at, fence, guard in zip(
            *columns[:12], guards[: len(columns[0])], strict=True
        )
    ]
    for place, rest in enumerate(columns[12]):
        if rest is not None:
            jobs[place] = msgspec.structs.replace(jobs[place], **_rest(rest))
    return jobs


def guarded(job: JobRecord, guards: dict[int, Micros]) -> JobRecord:
    """A started job that was read by itself, with its guard; guards by the number of the job."""
    guard = guards.get(abs(job.order))
    return job if guard is None else msgspec.structs.replace(job, guard=guard)


def _rest(text: str) -> dict[str, Any]:
    """What of a started job is not as usual."""
    fields: dict[str, Any] = json.loads(text)
    fields["cost"] = fields.pop("costs") or fields["cost"]
    fields["backoff"] = None if fields["backoff"] is None else _backoff.decode(fields["backoff"])
    fields["logs"] = tuple(fields["logs"] or ())
    fields["progress"] = float(fields["progress"])
    return fields


def finish_columns(finishes: Sequence[Finish], least_guard: Micros) -> list[list[Any]]:
    """Ends of runs as the parallel arrays that `finish` and `claim` take."""
    return [
        [end.id for end in finishes],
        [end.fence for end in finishes],
        [str(end.outcome) for end in finishes],
        [end.result for end in finishes],
        [end.error for end in finishes],
        [end.after for end in finishes],
        [end.at for end in finishes],
        [end.when_open for end in finishes],
        [json.dumps([hold_json(hold, least_guard) for hold in end.holds]) if end.holds else None for end in finishes],
    ]


def hold_json(hold: Hold, least_guard: Micros) -> dict[str, Any]:
    """A hold as `hold_key` reads it."""
    return {
        "limit": hold.limit,
        "group": hold.group,
        "until": hold.until,
        "for": hold.for_,
        "jitter": hold.jitter,
        "reason": hold.reason,
    } | ({} if hold.create is None else {"create": limit_json(hold.create, least_guard)})


def limit_json(limit: Limit, least_guard: Micros) -> dict[str, Any]:
    """A limit as `declare_limit` reads it and `limits` gives it."""
    backoff = limit.backoff
    return {
        "name": limit.name,
        "queues": None if limit.queues is None else sorted(limit.queues),
        "tasks": None if limit.tasks is None else sorted(limit.tasks),
        "by_group": limit.by == "group",
        "kind": encode_kind(limit.kind, least_guard),
        "overrides": {group: encode_kind(kind, least_guard) for group, kind in limit.overrides.items()},
        "backoff": None
        if backoff is None
        else {"initial": backoff.initial_us, "multiplier": backoff.multiplier, "maximum": backoff.maximum_us},
    }


def limit_of(row: dict[str, Any]) -> Limit:
    """The inverse of `limit_json`."""
    backoff = row["backoff"]
    detached = row["queues"] == []
    limit = Limit(
        row["name"],
        decode_kind(row["kind"]),
        queues=None if detached else row["queues"],
        tasks=row["tasks"],
        by="group" if row["by_group"] else None,
        overrides={group: decode_kind(kind) for group, kind in row["overrides"].items()},
        backoff=None
        if backoff is None
        else HoldBackoff(f"{backoff['initial']}us", backoff["multiplier"], f"{backoff['maximum']}us"),
    )
    if detached:
        object.__setattr__(limit, "queues", frozenset())
    return limit


def counts_of(numbers: Sequence[int]) -> dict[str, int]:
    """How many jobs are in each state."""
    counted = dict(zip(STATES, numbers, strict=True))
    return {str(state): int(counted.get(state, 0)) for state in JobState}


def queue_record(row: Sequence[Any]) -> QueueRecord:
    """A queue as `queues` gives it."""
    name, counts, groups, paused, tasks, paused_groups = row
    return QueueRecord(
        name=name,
        counts=counts_of(counts),
        groups=groups,
        paused=paused,
        paused_tasks=tuple(tasks),
        paused_groups=tuple(paused_groups),
    )


def worker_record(row: Sequence[Any]) -> WorkerRecord:
    """A worker as the table has it."""
    id, queues, tasks, seen_at, lags = row
    return WorkerRecord(
        id=id,
        queues=tuple(queues),
        tasks=None if tasks is None else frozenset(tasks),
        seen_at=seen_at,
        lags={} if lags is None else msgspec.json.decode(lags, type=dict[str, Lag]),
    )


FAILED = "f"
"""How a word about a job begins that the database failed by itself; what follows is its JSON."""

_decode_failed = msgspec.json.Decoder(Failed).decode


def failed_in(words: Iterable[str]) -> list[Failed]:
    """The jobs that a call failed, among what it says to those who sleep."""
    return [_decode_failed(word[1:]) for word in words if word[0] == FAILED]
