"""What a transaction notifies of: kept until it is written, then delivered here and in other processes."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import msgspec

from paceline.job import JobRecord
from paceline.stores.steps.sleepers import Sleepers

LARGEST = 32_000
"""A message that would be longer says only that a lot happened."""


class Message(msgspec.Struct):
    """What one process notifies another of."""

    number: int = 0
    all: bool = False
    much: bool = False
    queues: list[str] = []
    empty: list[str] = []
    workers: list[str] = []
    ended: list[str] = []


class Notifications:
    """Takes the place of the sleepers inside a transaction."""

    def __init__(self, sleepers: Sleepers) -> None:
        self._sleepers = sleepers
        self.listeners: dict[str, int] = {}
        """Other processes' sockets, and whether somebody there waits for the end of a job."""
        self._waiting_elsewhere: list[str] = []
        self.clear()

    def set_listeners(self, listeners: dict[str, int]) -> None:
        """Who listens in other processes."""
        self.listeners = listeners
        self._waiting_elsewhere = [address for address, waits in listeners.items() if waits]

    def clear(self) -> None:
        self.everyone = False
        self.queues: set[str] = set()
        self.empty: set[str] = set()
        self.workers: set[str] = set()
        self.ended: dict[str, JobRecord | None] = {}

    @property
    def waiters(self) -> Sized:
        """Not empty when somebody may wait for the end of a job, here or in another process."""
        return self._sleepers.waiters or self._waiting_elsewhere

    def any(self) -> bool:
        """True when there is something to notify of."""
        return self.everyone or bool(self.queues or self.empty or self.workers or self.ended)

    def wake(self, queue: str) -> None:
        self.queues.add(queue)

    def wake_all(self) -> None:
        self.everyone = True

    def emptied(self, queue: str) -> None:
        self.empty.add(queue)

    def ask_heartbeat(self, worker: str | None) -> None:
        if worker is not None:
            self.workers.add(worker)

    def finished(self, job_id: str, record: JobRecord) -> None:
        self.ended[job_id] = record

    def removed(self, job_id: str) -> None:
        self.ended[job_id] = None

    def message(self, number: int) -> bytes:
        """The same for other processes."""
        found = [list(names) for names in (self.queues, self.empty, self.workers, self.ended)]
        text = msgspec.json.encode(Message(number, self.everyone, False, *found))
        return text if len(text) <= LARGEST else msgspec.json.encode(Message(number, True, True))

    def deliver(self) -> None:
        """Wake those who sleep in this process."""
        sleepers = self._sleepers
        for job_id, record in self.ended.items():
            if record is None:
                sleepers.removed(job_id)
            else:
                sleepers.finished(job_id, record)
        wake(sleepers, self.everyone, self.queues, self.empty, self.workers)


def wake(sleepers: Sleepers, everyone: bool, queues: Any = (), empty: Any = (), workers: Any = ()) -> None:
    """Wake the sleepers of this process that something is for."""
    for worker in workers:
        sleepers.ask_heartbeat(worker)
    if everyone:
        sleepers.wake_all()
        return
    for queue in queues:
        sleepers.wake(queue)
    for queue in empty:
        sleepers.emptied(queue)
