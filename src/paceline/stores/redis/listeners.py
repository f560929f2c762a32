"""Who sleeps in one event loop, and the one connection on which the server wakes it."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import redis

from paceline.errors import JobNotFound, PacelineError
from paceline.job import JobRecord
from paceline.stores.redis.client import Client
from paceline.stores.redis.resting import head_of
from paceline.stores.redis.waiters import Waiters
from paceline.stores.redis.wire import Wire

log = logging.getLogger("paceline.store")

BLOCK = 30
"""Seconds after which a sleeper that heard nothing blocks anew, and the ends that are waited for are looked for."""
RENEW = 600.0
"""Seconds after which a sleeper says again that it lives; its registration lasts three times as long."""
WATCH = 0.31
"""Seconds that somebody who was woken has to claim, a little more than the server gives."""
PASS_ON = 0.05
"""Seconds after which a worker that was woken and did not claim passes the word on."""
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
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        client.when_silent[self._loop] = self._listen_anew
        self._listeners: dict[RedisListener, None] = {}
        self._waiters = Waiters(self.waker, run, now)
        self._looked_at = self._loop.time()
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
        future = self._waiters.add(job_id)
        self._begin()
        return future

    def stop_waiting(self, job_id: str, future: asyncio.Future[JobRecord]) -> None:
        self._waiters.remove(job_id, future)
        self._end_if_alone()

    @property
    def insurance_wakeups(self) -> int:
        """How many ends of jobs were found by looking, because nobody was notified of them."""
        return self._waiters.insurance_wakeups

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
            log.debug("the server could not be told who sleeps: %s", error)

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
        self._waiters.reject_all("the store was closed")
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
        try:
            while True:
                try:
                    wire = self._wire = await self._client.connect(None)
                    await self._answer(wire, b"PING")
                    self._client.outage.ends()
                    if self.has_news:
                        await self.say()
                    while True:
                        born = self._client.born
                        async with asyncio.timeout(BLOCK + 5):
                            found = await wire.request(b"BLPOP", *self._keys(born), BLOCK)
                        pause = 0.05
                        if found is not None and found[0].startswith(self._client.head[:-4] + b"ended"):
                            await self._begin_anew(born)
                        elif found is not None:
                            self._heard(found[1])
                        if self._loop.time() - self._looked_at >= BLOCK:
                            await self._look_for_lost_words(wire, born)
                except (PacelineError, redis.RedisError, TimeoutError) as error:
                    self._client.outage.begins(error)
                except Exception:
                    log.exception("listening to %s failed; retrying", self._client.shown)
                if self._wire is not None:
                    self._wire.close()
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
                await self._look_again()
        finally:
            if self._wire is not None:
                self._wire.close()

    async def _answer(self, wire: Wire, *words: bytes) -> Any:
        """Ask for what the server knows at once. (`asyncio.wait_for` forgets a cancellation that meets the answer.)"""
        async with asyncio.timeout(self._client.timeout):
            return await wire.request(*words)

    async def _look_for_lost_words(self, wire: Wire, born: int | None) -> None:
        """Workers and limiters look for themselves now and then; for who waits for a job this is the bound."""
        if self._loop.time() - self._renewed_at > RENEW:
            self._renewed_at = self._loop.time()
            await self._run("sleep", {"waker": self.waker, "queues": [], "workers": []})
        if self._waiters:
            head = head_of(await self._answer(wire, b"GET", self._client.head))
            if head.born != born:
                await self._begin_anew(born)
            else:
                await self._waiters.look(head)
        self._looked_at = self._loop.time()

    def _keys(self, born: int | None) -> list[bytes]:
        """The list of our own, and the one that says that the life we know has ended."""
        prefix = self._client.head[:-4]
        own = prefix + b"wake\x1f" + self.waker.encode()
        return [own] if born is None else [own, prefix + b"ended\x1f%d" % born]

    async def _begin_anew(self, born: int | None) -> None:
        """The server lost its data while we slept: nobody there knows us, nor those who sleep elsewhere."""
        await self._client.greet_again(born)
        await self._run("sleep", self._said() | {"knew_born": born})
        await self._look_again()

    def _listen_anew(self) -> None:
        """The server did not answer on our other connection: nobody knows whether this one still leads to it."""
        if self._wire is not None:
            self._wire.close("the server was silent")

    async def _look_again(self) -> None:
        """Words may have been missed: sleepers look, and those who wait for a job ask."""
        for listener in self._listeners:
            self._wake(listener)
        await self._waiters.ask()

    def _heard(self, said: bytes) -> None:
        if said[:1] == b"f":
            self._waiters.heard(said)
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
                self._waiters.settle(word[1], JobNotFound(word[1]))

    async def _watch(self, pause: float) -> None:
        """Another one was woken: if it dies before it claims, the server wakes the next, when somebody asks it to."""
        try:
            on = True
            while on:
                await asyncio.sleep(pause)
                on = _decode((await self._run("watch", {}))[0])[0]
                pause = WATCH
        except PacelineError as error:
            log.debug("the server could not be asked who was woken: %s", error)

    def _pass_on(self, queue: str, heard_at: float) -> None:
        """Nobody here asked for work after the word: paused, or held by a limiter of its own. Another one may look."""
        if self._claimed_at.get(queue, 0.0) < heard_at and self._listeners:
            self._passing = self._loop.create_task(self._try_to_pass_on(queue))

    async def _try_to_pass_on(self, queue: str) -> None:
        try:
            await self._run("wake", {"queue": queue, "waker": self.waker})
        except PacelineError as error:
            log.debug("the server could not be told to wake another: %s", error)

    def _wake_where(self, wanted: Callable[[RedisListener], bool]) -> None:
        for listener in tuple(self._listeners):
            if wanted(listener):
                self._wake(listener)

    def _wake(self, listener: RedisListener) -> None:
        self.told = True
        listener.event.set()


def ears_here(known: dict[asyncio.AbstractEventLoop, Ears], make: Callable[[], Ears]) -> Ears:
    """Those of the running event loop; those of loops that ended are let go."""
    loop = asyncio.get_running_loop()
    ears = known.get(loop)
    if ears is None:
        for gone in [gone for gone in known if gone.is_closed()]:
            known.pop(gone).abandon()
        ears = known[loop] = make()
    return ears
