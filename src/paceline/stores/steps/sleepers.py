"""Who sleeps, and how they are woken: events for workers, futures for those who wait for a job's end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence, Sized
from typing import Protocol

from paceline.errors import JobNotFound, StoreUnavailable
from paceline.job import JobRecord


class Wakes(Protocol):
    """Whom steps wake: at once, or when what they changed is written."""

    @property
    def waiters(self) -> Sized:
        """Not empty when somebody may wait for the end of a job."""

    def wake(self, queue: str) -> None: ...

    def wake_all(self) -> None: ...

    def emptied(self, queue: str) -> None: ...

    def ask_heartbeat(self, worker: str | None) -> None: ...

    def finished(self, job_id: str, record: JobRecord) -> None: ...

    def removed(self, job_id: str) -> None: ...


class Sleeper:
    """An event in the loop that made it; may be set from any thread."""

    __slots__ = ("_forget", "_loop", "_thread", "event", "heartbeat_due", "queues", "wants_empty", "worker")

    def __init__(self, queues: Sequence[str], worker: str | None, forget: Callable[[Sleeper], None]) -> None:
        self.event = asyncio.Event()
        self.heartbeat_due = False
        self.wants_empty = False
        self.queues = tuple(queues)
        self.worker = worker
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._forget = forget

    def wake(self) -> None:
        if self.event.is_set():
            return
        if self._loop.is_closed():
            # Its program ended without a word: nobody is there to be woken.
            self.close()
        elif threading.get_ident() == self._thread:
            self.event.set()
        else:
            with contextlib.suppress(RuntimeError):  # it was closed at this very moment
                self._loop.call_soon_threadsafe(self.event.set)

    def close(self) -> None:
        self._forget(self)


class Sleepers:
    """All sleepers of one store."""

    def __init__(self) -> None:
        self.forked()

    def forked(self) -> None:
        """Begin with nobody; a child process leaves those who sleep in its parent alone."""
        self._all: dict[Sleeper, None] = {}
        self._by_queue: dict[str, dict[Sleeper, None]] = {}
        self.waiters: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Future[JobRecord]]]] = {}
        self._lock = threading.Lock()
        """Loops in several threads wait and stop waiting."""

    def listen(self, queues: Sequence[str], worker: str | None) -> Sleeper:
        listener = Sleeper(queues, worker, self._forget)
        self._all[listener] = None
        for queue in listener.queues:
            self._by_queue.setdefault(queue, {})[listener] = None
        return listener

    def wake(self, queue: str) -> None:
        """A job arrived, or something else changed, in one queue."""
        for listener in tuple(self._by_queue.get(queue, ())):
            listener.wake()

    def emptied(self, queue: str) -> None:
        """The last unfinished job of a queue ended."""
        for listener in tuple(self._by_queue.get(queue, ())):
            if listener.wants_empty:
                listener.wake()

    def wake_all(self) -> None:
        """A limit opened or changed: it may cover any queue."""
        for listener in tuple(self._all):
            listener.wake()

    def ask_heartbeat(self, worker: str | None) -> None:
        """A lease of this worker needs a look."""
        for listener in tuple(self._all):
            if listener.worker == worker:
                listener.heartbeat_due = True
                listener.wake()

    def wait_for(self, job_id: str) -> asyncio.Future[JobRecord]:
        """A future for the final record of a job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[JobRecord] = loop.create_future()
        with self._lock:
            self.waiters.setdefault(job_id, []).append((loop, future))
        return future

    def stop_waiting(self, job_id: str, future: asyncio.Future[JobRecord]) -> None:
        with self._lock:
            left = [pair for pair in self.waiters.get(job_id, ()) if pair[1] is not future]
            if left:
                self.waiters[job_id] = left
            else:
                self.waiters.pop(job_id, None)

    def finished(self, job_id: str, record: JobRecord) -> None:
        """Tell those who wait for this job."""
        for loop, future in self._waiters_for(job_id):
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, future, record)

    def removed(self, job_id: str) -> None:
        """A job is gone before it finished: those who wait for it get `JobNotFound`."""
        for loop, future in self._waiters_for(job_id):
            if not loop.is_closed():
                loop.call_soon_threadsafe(_reject, future, JobNotFound(job_id))

    def close(self) -> None:
        """The store closes: those who wait for a job get an error, sleepers look again."""
        for job_id in list(self.waiters):
            for loop, future in self._waiters_for(job_id):
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_reject, future, StoreUnavailable("the store was closed"))
        self.wake_all()

    def _waiters_for(self, job_id: str) -> list[tuple[asyncio.AbstractEventLoop, asyncio.Future[JobRecord]]]:
        with self._lock:
            return self.waiters.pop(job_id, [])

    def _forget(self, listener: Sleeper) -> None:
        self._all.pop(listener, None)
        for queue in listener.queues:
            self._by_queue.get(queue, {}).pop(listener, None)


def _reject(future: asyncio.Future[JobRecord], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _resolve(future: asyncio.Future[JobRecord], record: JobRecord) -> None:
    if not future.done():
        future.set_result(record)
