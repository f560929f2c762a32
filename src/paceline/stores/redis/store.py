"""The Redis store: every call is one script, run by the server in one step."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.clock import Clock, Micros
from paceline.codec import MAX_PAYLOAD
from paceline.errors import ConfigError, MoveNotAllowed, require
from paceline.forks import PerLoop
from paceline.job import ACTIVE, MOVES, JobRecord, JobState, Move, NewJob
from paceline.limits import Limit
from paceline.stores.adds import Adds, adds_here
from paceline.stores.interface import (
    About,
    Ask,
    Begun,
    Changed,
    Claim,
    Decided,
    Extended,
    Filter,
    Finish,
    Grant,
    Hold,
    Inserted,
    Lease,
    Note,
    Override,
    QueueRecord,
    Standing,
    StartRecord,
    Target,
    Usage,
    WorkerRecord,
)
from paceline.stores.redis.about import about
from paceline.stores.redis.client import Client
from paceline.stores.redis.greeting import Greeting, check_fsync
from paceline.stores.redis.listeners import Ears, RedisListener, ears_here
from paceline.stores.redis.records import (
    CODES,
    decode_claimed,
    decode_failed,
    decode_jobs,
    decode_limit,
    decode_overrides,
    decode_starts,
    decode_usage,
    encode_ask,
    encode_finish,
    encode_hold,
    encode_job,
    encode_limit,
    encode_note,
    encode_override,
    new_record,
)
from paceline.stores.redis.remembered import Remembered
from paceline.stores.redis.resting import Rests
from paceline.stores.redis.standing import decode_counts, decode_queue, decode_standing, decode_workers, encode_worker
from paceline.stores.redis.stretches import find, sweep
from paceline.stores.server_clock import ServerClock
from paceline.text import show

_decode = msgspec.msgpack.Decoder().decode
LEAST_GUARD: Micros = 5_000
"""The way to the server and back, and until a handler begins: below this every start would be late."""
ALIVE = 300.0
"""Seconds for which a worker that holds nothing counts as seen; the server forgets it after an hour."""


class RedisStore:
    """Jobs and limits on a server: `redis://host:6379/0`, `rediss://…`, `unix:///path`."""

    never_blocks = False

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        clock: Clock | None = None,
        max_payload: int = MAX_PAYLOAD,
        connect_timeout: float = 5.0,
        timeout: float = 10.0,
        durability: str = "server",
        trust_restart: bool = False,
    ) -> None:
        require(durability in ("server", "fsync"), "durability", durability, '"server" or "fsync"')
        self.namespace = namespace
        self.max_payload = max_payload
        self._server_clock = ServerClock()
        self.clock: Clock = clock or self._server_clock
        self._virtual = self.clock if self.clock.virtual else None
        self._client = Client(
            url,
            f"{{paceline:{namespace}}}:head",
            connect_timeout=connect_timeout,
            timeout=timeout,
        )
        self.address = self._client.shown
        self._remembered = Remembered(self.least_guard)
        self._greeting = Greeting(self._client, self.clock, self._remembered, trust_restart=trust_restart)
        self._rests = Rests(self._client, self.clock)
        self._client.fsync = durability == "fsync"
        self._ears: PerLoop[asyncio.AbstractEventLoop, Ears] = PerLoop()
        self._adds: PerLoop[asyncio.AbstractEventLoop, Adds] = PerLoop()
        self._seen: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<RedisStore {self._client.shown} {self.namespace!r}>"

    @property
    def least_guard(self) -> Micros:
        return 0 if self.clock.virtual else LEAST_GUARD

    async def open(self, within: object = None) -> None:
        await self._client.command(b"PING", again=True)
        if self._client.fsync:
            await check_fsync(await self._client.wire(), 0)

    async def about(self) -> About:
        return about(await self._client.command(b"INFO", again=True))

    async def close(self) -> None:
        here = asyncio.get_running_loop()
        for loop, each in self._ears.take().items():
            if loop is here:
                await each.close()
            else:
                each.abandon()
        await self._greeting.bye()
        self._client.close()

    async def _run(
        self, name: str, wanted: dict[str, Any], bodies: Sequence[bytes] = (), *, again: bool = False
    ) -> list[Any]:
        """Run a script, after the server knows who listens here."""
        ears = self._ears.get(asyncio.get_running_loop())
        if ears is not None and ears.has_news:
            await ears.say()
        return await self._ask(name, wanted, bodies, again=again)

    async def _ask(
        self, name: str, wanted: dict[str, Any], bodies: Sequence[bytes] = (), *, again: bool = False
    ) -> list[Any]:
        if self._virtual is not None:
            wanted["now"] = self._virtual.now()
        return await self._client.run(name, wanted, bodies, again=again)

    def _post(self, name: str, wanted: dict[str, Any]) -> asyncio.Future[Any] | None:
        if self._virtual is not None:
            wanted["now"] = self._virtual.now()
        return self._client.post(name, wanted)

    async def _value(self, name: str, wanted: dict[str, Any], *, again: bool = False) -> Any:
        return _decode((await self._run(name, wanted, again=again))[0])

    def _ears_here(self) -> Ears:
        return ears_here(self._ears, lambda: Ears(self._client, self._ask, self._post, self.clock.now))

    # a job's life

    async def insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        if within is not None:
            raise ConfigError(
                f"within={show(within)} is wrong: the Redis store has no transactions to join", option="within"
            )
        return await adds_here(self._adds, self._insert).add(jobs)

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        encoded = [encode_job(job) for job in jobs]
        bodies = [body for _, body in encoded]
        answer = await self._run("insert", {"jobs": [said for said, _ in encoded]}, bodies, again=True)
        now, orders = _decode(answer[0])
        existing = iter(decode_jobs(answer, now))
        return [
            Inserted(next(existing), True) if order is False else Inserted(new_record(job, order, now), False)
            for job, order in zip(jobs, orders, strict=True)
        ]

    async def claim(self, ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
        ears = self._ears.get(asyncio.get_running_loop())
        told = bool(finishes) or (ears is not None and ears.told)
        if not told and (nothing := await self._rests.still_nothing(ask)) is not None:
            return nothing
        wanted = encode_ask(ask, finishes, self.least_guard)
        if ears is not None:
            ears.told = False
            if (waker := ears.waker_for(ask.queues)) is not None:
                wanted["waker"] = waker
        await self._greeting.claims()
        # A claim with a name gives the same answer when it is asked again.
        answer = await self._run("claim", wanted, again=bool(ask.claim_id))
        now, again, lost, needs_room, guards, charges, steps, failed = _decode(answer[0])
        self._server_clock.heard(now)
        self._greeting.heard(charges)
        jobs, gone = decode_claimed(answer, now, guards), decode_failed(failed)
        claim = Claim(jobs=jobs, now=now, ask_again_at=again, lost=lost, needs_room=needs_room, failed=gone)
        self._rests.found(ask, claim, steps)
        return claim

    async def finish(self, finishes: Sequence[Finish]) -> list[str]:
        said = [encode_finish(finish, self.least_guard) for finish in finishes]
        lost: list[str] = await self._value("finish", {"finishes": said})
        return lost

    async def decide_again(self, leases: Sequence[Lease]) -> Decided:
        wanted = {"leases": [(each.id, each.fence) for each in leases]}
        refused, lost, charges = await self._value("decide_again", wanted, again=True)
        self._greeting.heard(charges)
        return Decided(refused=refused, lost=lost)

    async def begun(self, said: Sequence[Begun]) -> list[str]:
        wanted = {"leases": [(each.id, each.fence, each.ago) for each in said]}
        lost, charges = await self._value("begun", wanted, again=True)
        self._greeting.heard(charges)
        return list(lost)

    async def extend(self, worker: str, leases: Sequence[Lease], lease: Micros) -> Extended:
        if not leases and self._virtual is None and time.monotonic() < self._seen.get(worker, math.inf):
            # It holds nothing, and was seen a moment ago or is no worker: who idles costs the server nothing.
            return Extended([], [])
        if worker in self._seen:
            self._seen[worker] = time.monotonic() + ALIVE
        held = [(each.id, each.fence) for each in leases]
        said = await self._value("extend", {"worker": worker, "leases": held, "lease": lease}, again=True)
        return Extended(said[0], said[1])

    async def note(self, notes: Sequence[Note]) -> list[str]:
        said = [encode_note(note) for note in notes]
        lost: list[str] = await self._value("note", {"notes": said})
        return lost

    async def move(self, ids: Sequence[str], move: Move) -> None:
        await self._run("move", {"ids": list(ids), "move": move})

    async def finished(self, job_id: str, timeout: Micros | None) -> JobRecord | None:
        ears = self._ears_here()
        future = ears.wait_for(job_id)
        try:
            answer = await self._run("finished", {"id": job_id, "waker": ears.waker}, again=True)
            now: Micros = _decode(answer[0])[0]
            self._server_clock.heard(now)
            if len(answer) > 1:
                return decode_jobs(answer, now)[0]
            if timeout is None:
                return await future
            done = asyncio.Event()
            future.add_done_callback(lambda _: done.set())
            return future.result() if await self.clock.wait(done, now + timeout) else None
        finally:
            ears.stop_waiting(job_id, future)

    # a queue as a whole

    async def move_all(self, queue: str, state: JobState, move: Move) -> int:
        if state not in MOVES[move]:
            raise MoveNotAllowed(queue, state, move)
        return await sweep(self._value, "sweep", {"queue": queue, "how": "move", "state": CODES[state], "move": move})

    async def drain(self, queue: str) -> int:
        return await sweep(self._value, "sweep", {"queue": queue, "how": "drain"})

    async def clean(self, queue: str, state: JobState, older_than: Micros) -> int:
        if state is ACTIVE:
            raise MoveNotAllowed(queue, ACTIVE, "clean")
        wanted = {"how": "clean", "state": CODES.get(state, 0), "older_than": older_than}
        return await sweep(self._value, "sweep", {"queue": queue} | wanted)

    async def obliterate(self, queue: str, force: bool) -> int:
        return await sweep(self._value, "obliterate", {"queue": queue, "force": force})

    async def pause(self, queue: str, task: str | None, group: str | None, paused: bool) -> None:
        await self._run("pause", {"queue": queue, "task": task, "group": group, "paused": paused}, again=True)

    # limits

    async def set_limits(self, limits: Sequence[Limit], within: object = None) -> list[Changed]:
        wanted = {"limits": [encode_limit(limit, self.least_guard) for limit in limits]}
        changed, now = await self._value("set_limits", wanted, again=True)
        self._remembered.declare(limits, now)
        pairs = [(decode_limit(change["old"]), decode_limit(change["new"])) for change in changed]
        # What an earlier release wrote is written anew, with the guard in force, and says the same.
        return [Changed(old, new) for old, new in pairs if old != new]

    async def drop_limit(self, name: str) -> bool:
        dropped: bool = await self._value("drop_limit", {"name": name})
        self._remembered.drop(name)
        return dropped

    async def limits(self, within: object = None) -> list[Limit]:
        return [decode_limit(said) for said in await self._value("overrides", {}, again=True)]

    async def override(self, override: Override, for_: Micros | None) -> None:
        numbers = encode_override(override, self.least_guard)
        said = {"name": override.limit, "group": override.group, "said": numbers, "length": for_}
        await self._run("override", said, again=True)

    async def lift(self, limit: str, group: str | None) -> None:
        await self._run("override", {"name": limit, "group": group, "lift": True}, again=True)

    async def overrides(self) -> list[Override]:
        return decode_overrides(await self._value("overrides", {}, again=True))

    async def hold(self, holds: Sequence[Hold]) -> None:
        await self._run("hold", {"holds": [encode_hold(hold, self.least_guard) for hold in holds]})

    async def release(self, limit: str, group: str | None) -> None:
        await self._run("release", {"name": limit, "group": group}, again=True)

    async def usage(self, limit: str, group: str | None) -> Usage:
        return decode_usage(await self._value("usage", {"name": limit, "group": group}, again=True))

    async def acquire(
        self,
        targets: Sequence[Target],
        permit: str,
        lease: Micros,
        force: bool = False,
        waits: bool = False,
        late: Micros | None = None,
    ) -> Grant:
        asked = [(target.limit, target.group, target.cost) for target in targets]
        wanted = {"targets": asked, "permit": permit, "lease": lease, "force": force, "waits": waits, "late": late}
        await self._greeting.claims()
        granted, now, until, leased, charges, failed, guard = await self._value("acquire", wanted)
        self._server_clock.heard(now)
        self._greeting.heard(charges)
        return Grant(granted, now, until, leased, decode_failed(failed), guard)

    async def give_back(self, permits: Sequence[str]) -> None:
        await self._run("give_back", {"permits": list(permits)}, again=True)

    async def clear(self, limit: str, group: str | None) -> None:
        await self._run("release", {"name": limit, "group": group, "clear": True}, again=True)

    # reading

    async def get(self, ids: Sequence[str]) -> list[JobRecord]:
        answer = await self._run("get", {"ids": list(ids)}, again=True)
        return decode_jobs(answer, _decode(answer[0])[0])

    async def find(self, filter: Filter) -> list[JobRecord]:
        return await find(self._run, filter)

    async def counts(self, queue: str) -> dict[str, int]:
        numbers = await self._value("counts", {"queue": queue}, again=True)
        return decode_counts(numbers)

    async def queues(self) -> list[QueueRecord]:
        found = [decode_queue(said) for said in await self._value("queues", {}, again=True)]
        return sorted(found, key=lambda each: each.name)

    async def starts(self, queue: str, since: Micros | None) -> list[StartRecord]:
        key = self._client.head[:-4] + b"starts\x1f" + queue.encode()
        rows = decode_starts(await self._client.command(b"LRANGE", key, 0, -1, again=True))
        return [start for start in rows if since is None or start.at >= since]

    async def standing(self, job_id: str) -> Standing:
        answer = await self._run("standing", {"id": job_id}, again=True)
        return decode_standing(answer, self.least_guard)

    # workers

    async def register(self, worker: WorkerRecord) -> None:
        said = encode_worker(worker)
        self._seen[worker.id] = time.monotonic() + ALIVE
        await self._run("register", {"worker": said}, again=True)
        self._remembered.register(said)

    async def unregister(self, worker: str) -> None:
        self._seen.pop(worker, None)
        self._remembered.unregister(worker)
        self._rests.forget(worker)
        await self._run("register", {"gone": worker}, again=True)

    async def workers(self) -> list[WorkerRecord]:
        rows = await self._client.command(b"HVALS", self._client.head[:-4] + b"workers", again=True)
        return decode_workers(rows)

    def listen(self, queues: Sequence[str], worker: str | None = None) -> RedisListener:
        return self._ears_here().listen(queues, worker)

    async def prune(self) -> int:
        total: int = 0
        if await self._rests.nothing_to_prune():
            return total
        while True:
            removed, more = await self._value("prune", {"most": 1000}, again=True)
            total += removed
            if not more:
                return total
