"""Who sleeps in this process, and how they are woken. All handles on one database, schema and namespace share ears."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence

ALL = "*"
"""A limit opened or changed: it may cover any queue."""


class Ear:
    """An event in the loop that made it; may be set from any thread."""

    __slots__ = ("_forget", "_loop", "_thread", "event", "heartbeat_due", "queues", "wants_empty", "worker")

    def __init__(self, queues: Sequence[str], worker: str | None, forget: Callable[[Ear], None]) -> None:
        self.event = asyncio.Event()
        self.heartbeat_due = False
        self.wants_empty = False
        self.queues = frozenset(queues)
        self.worker = worker
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._forget = forget

    def wake(self) -> None:
        if self._loop.is_closed():
            # Its program ended without a word: nobody is there to be woken.
            self.close()
        elif threading.get_ident() == self._thread:
            self.event.set()
        else:
            self._loop.call_soon_threadsafe(self.event.set)

    def close(self) -> None:
        self._forget(self)


class Ears:
    """All sleepers of this process on one namespace: workers and limiters, and those who wait for a job's end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ears: dict[Ear, None] = {}
        self._waiting: dict[str, dict[Ear, None]] = {}

    def listen(self, queues: Sequence[str], worker: str | None) -> Ear:
        ear = Ear(queues, worker, self._forget)
        with self._lock:
            self._ears[ear] = None
        return ear

    def wait_for(self, job_id: str) -> Ear:
        """An ear for the end of one job."""
        ear = Ear((), None, lambda ear: self._stop_waiting(job_id, ear))
        with self._lock:
            self._waiting.setdefault(job_id, {})[ear] = None
        return ear

    @property
    def wants_empty(self) -> bool:
        """True when somebody wants to hear that a queue is empty."""
        return any(ear.wants_empty for ear in list(self._ears))

    @property
    def busy(self) -> bool:
        """True when anybody sleeps here."""
        return bool(self._ears or self._waiting)

    def hear(self, words: Iterable[str]) -> None:
        """Wake whom these words concern: q a queue, e an empty one, w a worker, j a job that ended, * everybody."""
        for word in words:
            what, name = word[0], word[1:]
            if what == "j":
                for ear in list(self._waiting.get(name, ())):
                    ear.wake()
                continue
            for ear in list(self._ears):
                if what == "w":
                    if ear.worker == name:
                        ear.heartbeat_due = True
                        ear.wake()
                elif what == ALL or (name in ear.queues and (what == "q" or ear.wants_empty)):
                    ear.wake()

    def wake_all(self) -> None:
        """Something may have been missed: everybody looks again."""
        for ear in [*self._ears, *(ear for ears in list(self._waiting.values()) for ear in list(ears))]:
            ear.wake()

    def _forget(self, ear: Ear) -> None:
        with self._lock:
            self._ears.pop(ear, None)

    def _stop_waiting(self, job_id: str, ear: Ear) -> None:
        with self._lock:
            left = self._waiting.get(job_id, {})
            left.pop(ear, None)
            if not left:
                self._waiting.pop(job_id, None)


_shared: dict[tuple[str, str, str], Ears] = {}
_lock = threading.Lock()


def shared_ears(url: str, schema: str, namespace: str) -> Ears:
    """The ears that all handles of this process on one namespace share."""
    with _lock:
        return _shared.setdefault((url, schema, namespace), Ears())
