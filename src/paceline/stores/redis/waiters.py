"""Who waits in one event loop for jobs to end, and the look for ends whose notification got lost."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from paceline.errors import JobNotFound, PacelineError, StoreUnavailable
from paceline.job import JobRecord
from paceline.stores.redis.records import decode_job
from paceline.stores.redis.resting import Head

_LENGTHS = struct.Struct(">IIII")


class Waiters:
    """A future for each caller of `finished`; the server knows all of them by the name of their event loop."""

    def __init__(self, waker: str, run: Callable[..., Any], now: Callable[[], int]) -> None:
        self.insurance_wakeups = 0
        """How many ends were found by looking, because nobody was notified of them."""
        self._waker = waker
        self._run = run
        self._now = now
        self._futures: dict[str, list[asyncio.Future[JobRecord]]] = {}
        self._seen: tuple[int, int | None] | None = None
        """The steps of the server, and its life, at the last look."""

    def __bool__(self) -> bool:
        return bool(self._futures)

    def add(self, job_id: str) -> asyncio.Future[JobRecord]:
        """A future for the final record of a job."""
        future: asyncio.Future[JobRecord] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(job_id, []).append(future)
        return future

    def remove(self, job_id: str, future: asyncio.Future[JobRecord]) -> None:
        """Somebody waits no more."""
        left = [each for each in self._futures.get(job_id, ()) if each is not future]
        if left:
            self._futures[job_id] = left
        else:
            self._futures.pop(job_id, None)

    def settle(self, job_id: str, result: JobRecord | Exception) -> None:
        """The job has ended, or is gone."""
        for future in self._futures.pop(job_id, ()):
            if not future.done():
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def reject_all(self, why: str) -> None:
        """Nobody will be notified any more."""
        for job_id in list(self._futures):
            self.settle(job_id, StoreUnavailable(why))

    def heard(self, said: bytes) -> None:
        """The server sends the record of a job that ended."""
        record = _split(said)
        self.settle(record[0].decode(), decode_job(record, self._now()))

    async def look(self, head: Head) -> None:
        """Nothing was heard for long: if the server did anything since the last look, ask for every job."""
        seen = head.steps, head.born
        if seen != self._seen:
            self._seen = seen if await self.ask(unheard=True) else None

    async def ask(self, *, unheard: bool = False) -> bool:
        """Notifications may be lost: ask for every job. False when the server could not say."""
        for job_id in list(self._futures):
            result: JobRecord | Exception
            try:
                answer = await self._run("finished", {"id": job_id, "waker": self._waker})
            except JobNotFound as error:
                result = error
            except PacelineError:
                return False
            else:
                if len(answer) == 1:
                    continue
                result = decode_job(answer[1:5], self._now())
            # Before anybody goes on who may look at the number.
            self.insurance_wakeups += unheard
            self.settle(job_id, result)
        return True


def _split(said: bytes) -> list[bytes]:
    """The four parts of a job's record, whose lengths come first."""
    parts, at = [], 17
    for length in _LENGTHS.unpack_from(said, 1):
        parts.append(said[at : at + length])
        at += length
    return parts
