"""Who sleeps in one event loop, and the one connection on which the server wakes it."""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from paceline.errors import JobNotFound, PacelineError, StoreUnavailable
from paceline.job import JobRecord
from paceline.stores.redis.client import Client
from paceline.stores.redis.records import decode_job
from paceline.stores.redis.wire import Wire

log = logging.getLogger("paceline.store")

BLOCK = 60
"""Seconds after which a sleeper that heard nothing blocks anew."""
RENEW = 600.0
"""Seconds after which a sleeper says again that it lives; its registration lasts three times as long."""
WATCH = 0.31
"""Seconds that somebody who was woken has to claim, a little more than the server gives."""
PASS_ON = 0.05
"""Seconds after which a worker that was woken and did not claim passes the word on."""
_LENGTHS = struct.Struct(">IIII")
_decode = msgspec.msgpack.Decoder().decode


class Ear(asyncio.Event):
    """An event that says when it is cleared: from then on its owner wants to be told again."""

    def __init__(self, cleared: Callable[[], None]) -> None:
        super().__init__()
        self._cleared = cleared

    def clear(self) -> None:
        super().clear()
        self._cleared()


class RedisListener:
    """An event in the loop that made it."""

    def __init__(self, ears: Ears, queues: Sequence[str], worker: str | None) -> None:
        self.event: asyncio.Event = Ear(self._was_cleared)
        self.heartbeat_due = False
        self.queues = tuple(queues) or ("",)
        self.worker = worker
        self._wants_empty = False
        self._ears = ears

    @property
    def wants_empty(self) -> bool:
        return self._wants_empty

    @wants_empty.setter
    def wants_empty(self, wants: bool) -> None:
        self._wants_empty = wants
        self._ears.say_soon()

    def close(self) -> None:
        self._ears.forget(self)

    def _was_cleared(self) -> None:
        if self.worker is None or self._wants_empty:
            # A worker says that it sleeps with its claim, in the same step that finds nothing.
            self._ears.say_soon()


class Ears:
    """All sleepers of one store in one event loop: the server knows them by one name."""

    def __init__(
        self, client: Client, run: Callable[..., Any], post: Callable[..., Any], now: Callable[[], int]
    ) -> None:
        self.waker = uuid.uuid4().hex
        self.unsaid = False
        """True when the server does not know yet what is listened for."""
        self.told = False
        """True when there was news since the last claim."""
        self._client = client
        self._run = run
        self._post = partial(post, "sleep")
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        client.when_silent[self._loop] = self._listen_anew
        self._listeners: dict[RedisListener, None] = {}
        self._waiters: dict[str, list[asyncio.Future[JobRecord]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._saying: asyncio.Task[None] | None = None
        self._posted: asyncio.Future[Any] | None = None
        self._passing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._renewed_at = self._loop.time()
        self._claimed_at: dict[str, float] = {}
        self._wire: Wire | None = None

    def listen(self, queues: Sequence[str], worker: str | None) -> RedisListener:
        listener = RedisListener(self, queues, worker)
        self._listeners[listener] = None
        self._posted = self._post(self._said())
        if self._posted is None:
            self.say_soon()
        self._begin()
        return listener

    def forget(self, listener: RedisListener) -> None:
        if self._listeners.pop(listener, False) is None:
            self._take_back(listener)
        self._end_if_alone()

    def _take_back(self, gone: RedisListener) -> None:
        """Nobody listens for this any more: the server forgets it, and wakes another if this one was just woken."""
        left = {queue for listener in self._listeners for queue in listener.queues}
        workers = [] if gone.worker is None else [gone.worker]
        queues = [queue for queue in gone.queues if queue not in left]
        said = {"gone": True, "waker": self.waker, "queues": queues, "workers": workers}
        if not self._listeners and not self._waiters:
            said["closed"] = True
        if threading.get_ident() != self._thread or not self._loop.is_running():
            return
        posted = self._post(said)
        if posted is not None:
            # It is a kindness: whoever is woken in vain is given up after a moment.
            posted.add_done_callback(lambda each: each.cancelled() or each.exception())

    def wait_for(self, job_id: str) -> asyncio.Future[JobRecord]:
        """A future for the final record of a job."""
        future: asyncio.Future[JobRecord] = self._loop.create_future()
        self._waiters.setdefault(job_id, []).append(future)
        self._begin()
        return future

    def stop_waiting(self, job_id: str, future: asyncio.Future[JobRecord]) -> None:
        left = [each for each in self._waiters.get(job_id, ()) if each is not future]
        if left:
            self._waiters[job_id] = left
        else:
            self._waiters.pop(job_id, None)
        self._end_if_alone()

    @property
    def has_news(self) -> bool:
        """True when the server does not know for sure what is listened for."""
        return self.unsaid or self._posted is not None

    def waker_for(self, queues: Sequence[str]) -> str | None:
        """Our name, if somebody here sleeps for these queues: a claim that finds nothing puts it on the list."""
        now = self._loop.time()
        for queue in queues:
            self._claimed_at[queue] = now
        wanted = set(queues)
        if any(not wanted.isdisjoint(listener.queues) for listener in self._listeners):
            return self.waker
        return None

    def say_soon(self) -> None:
        """What is listened for has changed: the next call says so first, or this does if none comes."""
        if not self.unsaid:
            self.unsaid = True
            self._loop.call_soon(self._say_now)

    def _say_now(self) -> None:
        if self.unsaid and (self._saying is None or self._saying.done()):
            self._saying = self._loop.create_task(self._try_to_say())

    async def _try_to_say(self) -> None:
        try:
            if self.unsaid and self._listeners:
                await self.say()
        except PacelineError as error:
            log.info("the server could not be told who sleeps: %s", error)

    async def say(self) -> None:
        """Tell the server what is listened for, before anything else is asked of it."""
        posted, self._posted = self._posted, None
        if posted is not None:
            await asyncio.wait([posted])
            self.unsaid |= posted.cancelled() or posted.exception() is not None
        if self.unsaid:
            self.unsaid = False
            await self._run("sleep", self._said())

    def _said(self) -> dict[str, Any]:
        queues = {queue for listener in self._listeners for queue in listener.queues}
        empty = {queue for listener in self._listeners if listener.wants_empty for queue in listener.queues}
        workers = [listener.worker for listener in self._listeners if listener.worker is not None]
        return {"waker": self.waker, "queues": sorted(queues), "wants_empty": sorted(empty), "workers": workers}

    async def close(self) -> None:
        """The store closes: those who wait for a job get an error, sleepers look again."""
        every = (self._task, self._saying, self._passing, self._watching)
        tasks = [task for task in every if task is not None]
        self._task = self._saying = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.abandon()

    def abandon(self) -> None:
        """The same without waiting, also from another thread."""
        if self._wire is not None:
            self._wire.close()
        if self._loop.is_closed():
            return
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._reject_all)
        else:
            self._reject_all()

    def _reject_all(self) -> None:
        for task in (self._task, self._saying, self._watching):
            if task is not None:
                task.cancel()
        self._task = self._saying = None
        for futures in list(self._waiters.values()):
            for future in futures:
                if not future.done():
                    future.set_exception(StoreUnavailable("the store was closed"))
        self._waiters.clear()
        for listener in self._listeners:
            listener.event.set()

    # the words of the server

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._hear())

    def _end_if_alone(self) -> None:
        if not self._listeners and not self._waiters and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _hear(self) -> None:
        """Block on our list; when the connection is lost, look for the server until it is back."""
        pause = 0.05
        key = self._client.head[:-4] + b"wake\x1f" + self.waker.encode()
        try:
            while True:
                try:
                    wire = self._wire = await self._client.connect(None)
                    if self.has_news:
                        await self.say()
                    while True:
                        async with asyncio.timeout(BLOCK + 5):
                            found = await wire.request(b"BLPOP", key, BLOCK)
                        pause = 0.05
                        if found is not None:
                            self._heard(found[1])
                        elif self._loop.time() - self._renewed_at > RENEW:
                            self._renewed_at = self._loop.time()
                            words = (b"ZADD", self._client.head[:-4] + b"asleep", b"XX", self._now(), self.waker)
                            await self._client.command(*words, again=True)
                except (PacelineError, TimeoutError) as error:
                    log.info("the server is not heard: %s; trying again", error)
                except Exception as error:
                    log.warning("listening failed: %s; trying again", error)
                if self._wire is not None:
                    self._wire.close()
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
                await self._look_again()
        finally:
            if self._wire is not None:
                self._wire.close()

    def _listen_anew(self) -> None:
        """The server did not answer on our other connection: nobody knows whether this one still leads to it."""
        if self._wire is not None:
            self._wire.close("the server was silent")

    async def _look_again(self) -> None:
        """Words may have been missed: sleepers look, and those who wait for a job ask."""
        for listener in self._listeners:
            self._wake(listener)
        for job_id in list(self._waiters):
            try:
                answer = await self._run("finished", {"id": job_id, "waker": self.waker})
            except JobNotFound as error:
                self._settle(job_id, error)
            except PacelineError:
                return
            else:
                if len(answer) > 1:
                    self._settle(job_id, decode_job(answer[1:5], self._now()))

    def _heard(self, said: bytes) -> None:
        if said[:1] == b"f":
            record = _split(said)
            self._settle(record[0].decode(), decode_job(record, self._now()))
            return
        word = _decode(said)
        match word[0]:
            case "queue":
                self._wake_where(lambda listener: word[1] in listener.queues)
                if any(listener.worker is not None and word[1] in listener.queues for listener in self._listeners):
                    self._loop.call_later(PASS_ON, self._pass_on, word[1], self._loop.time())
            case "all":
                self._wake_where(lambda listener: True)
            case "empty":
                self._wake_where(lambda listener: listener.wants_empty and word[1] in listener.queues)
            case "heartbeat":
                for listener in self._listeners:
                    if listener.worker == word[1]:
                        listener.heartbeat_due = True
                self._wake_where(lambda listener: listener.worker == word[1])
            case "watch":
                if self._watching is None or self._watching.done():
                    self._watching = self._loop.create_task(self._watch(word[1] * WATCH))
            case "removed":
                self._settle(word[1], JobNotFound(word[1]))

    async def _watch(self, pause: float) -> None:
        """Another one was woken: if it dies before it claims, the server wakes the next, when somebody asks it to."""
        try:
            on = True
            while on:
                await asyncio.sleep(pause)
                on = _decode((await self._run("watch", {}))[0])[0]
                pause = WATCH
        except PacelineError as error:
            log.info("the server could not be asked who was woken: %s", error)

    def _pass_on(self, queue: str, heard_at: float) -> None:
        """Nobody here asked for work after the word: paused, or held by a limiter of its own. Another one may look."""
        if self._claimed_at.get(queue, 0.0) < heard_at and self._listeners:
            self._passing = self._loop.create_task(self._try_to_pass_on(queue))

    async def _try_to_pass_on(self, queue: str) -> None:
        try:
            await self._run("wake", {"queue": queue, "waker": self.waker})
        except PacelineError as error:
            log.info("the server could not be told to wake another: %s", error)

    def _wake_where(self, wanted: Callable[[RedisListener], bool]) -> None:
        for listener in tuple(self._listeners):
            if wanted(listener):
                self._wake(listener)

    def _wake(self, listener: RedisListener) -> None:
        self.told = True
        listener.event.set()

    def _settle(self, job_id: str, result: JobRecord | Exception) -> None:
        for future in self._waiters.pop(job_id, ()):
            if not future.done():
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)


def _split(said: bytes) -> list[bytes]:
    """The four parts of a job's record, whose lengths come first."""
    parts, at = [], 17
    for length in _LENGTHS.unpack_from(said, 1):
        parts.append(said[at : at + length])
        at += length
    return parts
