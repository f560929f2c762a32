"""What a job's snapshot can do: each action is one call to the store behind it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from paceline.clock import Micros
from paceline.errors import LeaseLost
from paceline.job import Explanation, JobRecord, Move
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.portal import run_sync
from paceline.limits.explain import explain
from paceline.stores.interface import Note


class StoreActions:
    """The actions of jobs that live in one store."""

    __slots__ = ("_declarations",)

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations

    async def find(self, job_id: str) -> JobRecord | None:
        store = await self._declarations.ready()
        found = await store.get([job_id])
        return found[0] if found else None

    async def finished(self, job_id: str, timeout: Micros | None) -> JobRecord | None:
        store = await self._declarations.ready()
        return await store.finished(job_id, timeout)

    async def move(self, job_id: str, move: Move) -> None:
        store = await self._declarations.ready()
        await store.move([job_id], move)

    async def note(self, record: JobRecord, progress: float | None, message: str | None, log: str | None) -> None:
        store = await self._declarations.ready()
        note = Note(id=record.id, fence=record.fence, progress=progress, message=message, log=log)
        if await store.note([note]):
            raise LeaseLost(record.id)

    async def explain(self, job_id: str) -> Explanation:
        store = await self._declarations.ready()
        return explain(await store.standing(job_id))

    def call_sync(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return run_sync(self._declarations.store, call, name="call")
