"""Who sleeps in this process, and how they are woken. All handles on one database, schema and namespace share ears."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from paceline.forks import in_child, reset_when_forked
from paceline.stores.steps.sleepers import Sleeper

ALL = "*"
"""A limit opened or changed: it may cover any queue."""


class Ears:
    """All sleepers of this process on one namespace: workers and limiters, and those who wait for a job's end."""

    def __init__(self) -> None:
        self.forked()
        reset_when_forked(self)

    def forked(self) -> None:
        """Begin with nobody; a child process leaves those who sleep in its parent alone."""
        self._lock = threading.Lock()
        self._ears: dict[Sleeper, None] = {}
        self._waiting: dict[str, dict[Sleeper, None]] = {}
        self._full: set[str] = set()
        """Workers whose latest claim filled all their slots: until one is free they need not hear of anything new."""

    def listen(self, queues: Sequence[str], worker: str | None) -> Sleeper:
        ear = Sleeper(queues, worker, self._forget)
        with self._lock:
            self._ears[ear] = None
        return ear

    def wait_for(self, job_id: str) -> Sleeper:
        """An ear for the end of one job."""
        ear = Sleeper((), None, lambda ear: self._stop_waiting(job_id, ear))
        with self._lock:
            self._waiting.setdefault(job_id, {})[ear] = None
        return ear

    @property
    def wants_empty(self) -> bool:
        """True when somebody wants to hear that a queue is empty."""
        return any(ear.wants_empty for ear in list(self._ears))

    def fed(self, worker: str, full: bool) -> bool:
        """A claim gave a worker as much as it can take, or less; True when it begins to sleep."""
        if full:
            self._full.add(worker)
            return False
        if worker not in self._full:
            return False
        self._full.discard(worker)
        return True

    @property
    def asleep(self) -> bool:
        """True when somebody here would act on what is new: a worker with a free slot, or who waits for an end."""
        return bool(self._waiting) or any(
            ear.worker is None or ear.wants_empty or ear.worker not in self._full for ear in list(self._ears)
        )

    @property
    def busy(self) -> bool:
        """True when anybody sleeps here."""
        return bool(self._ears or self._waiting)

    def hear(self, words: Iterable[str]) -> None:
        """Wake whom these words concern: q a queue, e an empty one, w a worker, j a job that ended, * everybody."""
        for word in words:
            what, name = word[:1], word[1:]
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

    def _forget(self, ear: Sleeper) -> None:
        with self._lock:
            self._ears.pop(ear, None)
            self._full.discard(ear.worker or "")

    def _stop_waiting(self, job_id: str, ear: Sleeper) -> None:
        with self._lock:
            left = self._waiting.get(job_id, {})
            left.pop(ear, None)
            if not left:
                self._waiting.pop(job_id, None)


_shared: dict[tuple[str, str, str], Ears] = {}
_lock = threading.Lock()


@in_child
def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


def shared_ears(url: str, schema: str, namespace: str) -> Ears:
    """The ears that all handles of this process on one namespace share."""
    with _lock:
        return _shared.setdefault((url, schema, namespace), Ears())
