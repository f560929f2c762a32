"""Adds of one event loop: those that come while another one is under way go to the server together, in one step.

Shared by the stores that are servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from paceline.errors import PacelineError, StoreUnavailable
from paceline.job import NewJob
from paceline.stores.interface import Inserted

MOST = 100
"""So many jobs go together; a call with more goes alone."""

Send: TypeAlias = Callable[[Sequence[NewJob]], Awaitable[list[Inserted]]]
Call: TypeAlias = tuple[Sequence[NewJob], asyncio.Future[list[Inserted]]]


class Adds:
    """Every caller gets its own answer or error, as if its call had been alone: all of its jobs, or none."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._calls: list[Call] = []
        self._under_way = 0
        self._crowded = False
        """True when callers come together: then the first one waits for the others of this moment."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        if len(jobs) >= MOST:
            return await self._send(jobs)
        if not self._under_way and not self._crowded:
            self._under_way += 1
            try:
                return await self._send(jobs)
            finally:
                self._under_way -= 1
                if self._calls:
                    self._go_on()
        future: asyncio.Future[list[Inserted]] = self._loop.create_future()
        self._calls.append((jobs, future))
        if len(self._calls) == 1 and not self._under_way:
            self._loop.call_soon(self._go_on)
        return await future

    def _go_on(self) -> None:
        """Send what has gathered, in the order it came."""
        while self._calls and not self._under_way:
            together: list[Call] = []
            size = 0
            while self._calls and (not together or size + len(self._calls[0][0]) <= MOST):
                call = self._calls.pop(0)
                if not call[1].done():
                    together.append(call)
                    size += len(call[0])
            if together:
                self._crowded = len(together) > 1
                self._under_way += 1
                task = self._loop.create_task(self._together(together))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _together(self, calls: list[Call]) -> None:
        try:
            await self._answer(calls)
        finally:
            for _, future in calls:
                if not future.done():
                    future.cancel()
            self._under_way -= 1
            self._go_on()

    async def _answer(self, calls: list[Call]) -> None:
        try:
            inserted = await self._send([job for jobs, _ in calls for job in jobs])
        except Exception as error:
            if len(calls) == 1 or isinstance(error, StoreUnavailable) or not isinstance(error, PacelineError):
                for _, future in calls:
                    if not future.done():
                        future.set_exception(error)
                return
            # One of them is refused, and nothing was added: each goes alone, and gets its own answer.
            for call in calls:
                await self._answer([call])
            return
        first = 0
        for jobs, future in calls:
            if not future.done():
                future.set_result(inserted[first : first + len(jobs)])
            first += len(jobs)


def adds_here(known: dict[asyncio.AbstractEventLoop, Adds], send: Send) -> Adds:
    """The adds of the running loop; loops that ended are forgotten."""
    loop = asyncio.get_running_loop()
    adds = known.get(loop)
    if adds is None:
        for gone in [gone for gone in known if gone.is_closed()]:
            del known[gone]
        adds = known[loop] = Adds(send)
    return adds
