"""Jobs and limits as the scripts keep them, and back."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.clock import NEVER, Micros
from paceline.job import JobRecord, JobState, NewJob
from paceline.limits import Backoff, Kind, Limit
from paceline.limits.admission import DEFAULT_BACKOFF
from paceline.limits.delay import MICROSECOND
from paceline.limits.rule import decode_kind, encode_kind
from paceline.stores.interface import Ask, Failed, Finish, Hold, Note, Override, StartRecord, Usage
from paceline.stores.redis.layout import Body, More, Run, Start

STATES = {
    1: JobState.WAITING,
    2: JobState.DELAYED,
    3: JobState.ACTIVE,
    4: JobState.COMPLETED,
    5: JobState.FAILED,
    6: JobState.CANCELLED,
}
CODES = {state: code for code, state in STATES.items()}

_TIMES = struct.Struct(">dddI")
_encode = msgspec.msgpack.Encoder().encode
_sorted = msgspec.json.Encoder(order="deterministic").encode


_decode_body = msgspec.msgpack.Decoder(Body).decode
_decode_run = msgspec.msgpack.Decoder(Run).decode
_decode_more = msgspec.msgpack.Decoder(More).decode
_decode_start = msgspec.msgpack.Decoder(Start).decode
_NO_MORE = More()


def encode_job(job: NewJob) -> tuple[list[Any], bytes]:
    """A job to insert: what the insert itself has to know, and the job's body: how long its head is, head, data."""
    body = Body(
        job.queue,
        job.task,
        job.group,
        job.priority,
        job.cost,
        job.keep,
        job.unique,
        job.unique_ttl,
        job.attempts,
        job.timeout,
        job.backoff,
    )
    head = _encode(body)
    said = [job.id, job.group_max_size, job.delay, job.due_at, job.lifo]
    return said, b"%b%b%b" % (len(head).to_bytes(4, "big"), head, job.data)


def new_record(job: NewJob, order: int, now: Micros) -> JobRecord:
    """The record of a job that was just added."""
    due_at = now + job.delay if job.due_at is None else max(job.due_at, now)
    return JobRecord(
        job.id,
        job.queue,
        job.task,
        job.data,
        job.group,
        JobState.DELAYED if due_at > now else JobState.WAITING,
        job.priority,
        order,
        job.attempts,
        0,
        0,
        0,
        job.cost,
        job.timeout,
        job.backoff,
        job.keep,
        job.unique,
        None if job.unique_ttl is None else now + job.unique_ttl,
        now,
        due_at,
    )


def decode_jobs(answer: Sequence[bytes], now: Micros, first: int = 1) -> list[JobRecord]:
    """The jobs of an answer: id, body, run and more for each."""
    return [decode_job(answer[place : place + 4], now) for place in range(first, len(answer), 4)]


def decode_claimed(answer: Sequence[bytes], now: Micros, guards: Sequence[Micros] | bool) -> list[JobRecord]:
    """The jobs that a claim gives, with their guards where any has one."""
    if isinstance(guards, bool):
        return decode_jobs(answer, now)
    return [decode_job(answer[4 * n + 1 : 4 * n + 5], now, guard) for n, guard in enumerate(guards)]


def decode_job(parts: Sequence[bytes], now: Micros, guard: Micros = NEVER) -> JobRecord:
    job_id, raw, run, more = parts
    order, created, due, length = _TIMES.unpack_from(raw)
    body = _decode_body(raw[28 : 28 + length])
    created_at = int(created)
    lived = _decode_run(run) if run else None
    said = _decode_more(more) if more else _NO_MORE
    due_at = int(due) if lived is None else lived.due_at
    state = JobState.WAITING if lived is None else STATES[lived.state]
    if state is JobState.WAITING and due_at > now:
        state = JobState.DELAYED
    return JobRecord(
        job_id.decode(),
        body.queue,
        body.task,
        raw[28 + length :],
        body.group,
        state,
        body.priority,
        int(order),
        body.attempts,
        lived.attempts_made if lived else 0,
        lived.crashes if lived else 0,
        lived.returns if lived else 0,
        body.cost,
        body.timeout,
        body.backoff,
        body.keep,
        body.unique,
        None if body.unique_ttl is None else created_at + body.unique_ttl,
        created_at,
        due_at,
        (lived.started_at or None) if lived else None,
        (lived.finished_at or None) if lived else None,
        100 if state is JobState.COMPLETED else said.progress,
        _text(said.message),
        # Bytes travel as text, because Lua's strings and msgpack's do not tell the two apart.
        said.result.encode("latin-1") if isinstance(said.result, str) else None,
        _text(said.error),
        said.logs,
        lived.fence if lived else 0,
        _text(lived.worker) if lived else None,
        lived.cancel_asked if lived else False,
        guard,
    )


def decode_starts(rows: Sequence[bytes]) -> list[StartRecord]:
    """The log of starts."""
    found = (_decode_start(row) for row in rows)
    return [StartRecord(each.id, each.at, each.task, _text(each.group), each.cost) for each in found]


def _text(value: str | bool) -> str | None:
    return value if isinstance(value, str) else None


def encode_ask(ask: Ask, finishes: Sequence[Finish], least_guard: Micros) -> dict[str, Any]:
    """What a worker asks for, with the ends of runs it sends along."""
    said: dict[str, Any] = {
        "queues": ask.queues,
        "slots": ask.slots,
        "worker": ask.worker,
        "lease": ask.lease,
        "claim_id": ask.claim_id,
    }
    if ask.tasks is not None:
        said["tasks"] = "\x1f".join(sorted(ask.tasks))
    if ask.also:
        said["also"] = ask.also
    if ask.room is not None:
        said["room"] = ask.room
    if ask.most is not None:
        said["most"] = ask.most
    if finishes:
        said["finishes"] = [encode_finish(finish, least_guard) for finish in finishes]
    return said


def encode_note(note: Note) -> dict[str, Any]:
    return {
        "id": note.id,
        "fence": note.fence,
        "progress": note.progress,
        "message": None if note.message is None else as_text(note.message),
        "log": None if note.log is None else as_text(note.log),
    }


def encode_finish(finish: Finish, least_guard: Micros) -> dict[str, Any]:
    """The end of a run; what is not said is left out."""
    said: dict[str, Any] = {"id": finish.id, "fence": finish.fence, "outcome": finish.outcome, "after": finish.after}
    if finish.result is not None:
        said["result"] = finish.result.decode("latin-1")
    if finish.error is not None:
        said["error"] = as_text(finish.error)
    if finish.at is not None:
        said["at"] = finish.at
    if finish.when_open:
        said["when_open"] = True
    if finish.holds:
        said["holds"] = [encode_hold(hold, least_guard) for hold in finish.holds]
    return said


def as_text(said: str) -> str:
    """Text that can be written as UTF-8: what cannot is replaced."""
    return said.encode("utf-8", "replace").decode()


def encode_hold(hold: Hold, least_guard: Micros) -> dict[str, Any]:
    return {
        "limit": hold.limit,
        "group": hold.group,
        "till": hold.until,
        "length": hold.for_,
        "jitter": hold.jitter,
        "reason": None if hold.reason is None else as_text(hold.reason),
        "create": None if hold.create is None else encode_limit(hold.create, least_guard),
        "backoff": _encode_backoff(DEFAULT_BACKOFF),
    }


# limits


def encode_limit(limit: Limit, least_guard: Micros) -> dict[str, Any]:
    """A limit as the scripts keep it; the texts are what they compare."""
    overrides = {group: encode_numbers(kind, least_guard) for group, kind in limit.overrides.items()}
    backoff = None if limit.backoff is None else _encode_backoff(limit.backoff)
    queues = None if limit.queues is None else sorted(limit.queues)
    tasks = None if limit.tasks is None else sorted(limit.tasks)
    return {
        "name": limit.name,
        "queues": queues,
        "tasks": tasks,
        "by": limit.by,
        "scope": _sorted([queues, tasks, limit.by]).decode(),
        **encode_numbers(limit.kind, least_guard),
        "overrides": overrides,
        "overrides_text": _sorted({group: said["text"] for group, said in overrides.items()}).decode(),
        "backoff": backoff,
        "backoff_text": _sorted(backoff).decode(),
    }


def encode_numbers(kind: Kind, least_guard: Micros) -> dict[str, Any]:
    """A kind as text to compare, and as parts: a word and its numbers, each rate with the guard in force."""
    rows = encode_kind(kind, least_guard)
    return {"text": _sorted(rows).decode(), "parts": [_encode_part(row) for row in rows]}


def _encode_part(row: dict[str, Any]) -> list[Any]:
    match row["kind"]:
        case "rate":
            return ["rate", row["max"], row["per"] + row["guard"], row["guard"], row["auto"]]
        case "concurrency":
            return ["concurrency", row["max"]]
        case "delay":
            return ["delay", row["gap"]]
        case _:
            return ["spacing", row["max"], row["per"]]


def decode_parts(parts: Sequence[Sequence[Any]]) -> Kind:
    """The kind that parts stand for."""
    rows: list[dict[str, Any]] = []
    for word, *numbers in parts:
        if word == "rate":
            most, window, guard, *auto = numbers
            row = {"kind": word, "max": most, "per": window - guard, "guard": guard}
            # Earlier releases did not write whether somebody chose the guard.
            rows.append(row | {"auto": auto[0]} if auto else row)
        elif word == "concurrency":
            rows.append({"kind": word, "max": numbers[0]})
        elif word == "delay":
            rows.append({"kind": word, "gap": numbers[0]})
        else:
            rows.append({"kind": word, "max": numbers[0], "per": numbers[1]})
    return decode_kind(rows)


def _encode_backoff(backoff: Backoff) -> dict[str, Any]:
    return {"initial": backoff.initial_us, "multiplier": backoff.multiplier, "maximum": backoff.maximum_us}


def decode_limit(said: dict[str, Any]) -> Limit:
    """The limit as it was declared."""
    kind = decode_parts(said["parts"])
    backoff = None
    if said.get("backoff"):
        numbers = said["backoff"]
        initial, maximum = numbers["initial"] * MICROSECOND, numbers["maximum"] * MICROSECOND
        backoff = Backoff(initial, numbers["multiplier"], maximum)
    queues = said.get("queues")
    if queues is not None and not queues:
        return Limit.for_code(said["name"], kind, backoff)
    overrides = dict(said["overrides"]) if said["overrides"] else {}
    return Limit(
        said["name"],
        kind,
        queues=queues,
        tasks=said.get("tasks"),
        by=said.get("by"),
        overrides={group: decode_parts(own["parts"]) for group, own in overrides.items()} or None,
        backoff=backoff,
    )


def encode_override(override: Override, least_guard: Micros) -> dict[str, Any]:
    """An operator's numbers."""
    reason = None if override.reason is None else as_text(override.reason)
    return encode_numbers(override.kind, least_guard) | {"reason": reason, "expires_at": override.expires_at}


def decode_overrides(limits: Sequence[dict[str, Any]]) -> list[Override]:
    """What operators said about limits, in the order they said it."""
    found = [
        (said["order"], limit["name"], group, said)
        for limit in limits
        for group, said in (dict(limit["said"]) if limit["said"] else {}).items()
    ]
    return [
        Override(
            limit=name,
            kind=decode_parts(said["parts"]),
            group=group or None,
            reason=said.get("reason"),
            expires_at=said.get("expires_at"),
        )
        for _, name, group, said in sorted(found, key=lambda each: each[0])
    ]


def decode_usage(said: dict[str, Any]) -> Usage:
    return Usage(
        limit=said["limit"],
        group=said.get("group"),
        kind=decode_parts(said["parts"]),
        used=said["used"],
        allowed=said.get("allowed"),
        hold_until=said["hold_until"],
        hold_reason=said.get("hold_reason"),
        opens_at=said["opens_at"],
        waiting=said["waiting"],
        now=said["now"],
        reserved_by=said.get("reserved_by"),
        cost=said["cost"],
        open=said["open"],
    )


def decode_failed(failed: Sequence[Sequence[Any]]) -> list[Failed]:
    """The jobs that a step failed by itself."""
    return [
        Failed(id=id, queue=queue, task=task, group=group or None, attempts_made=made, error=error)
        for id, queue, task, group, made, error in failed
    ]
