"""Progress and log lines of running handlers: a store that is away for a while ends no job that reports them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from paceline.errors import LeaseLost, StoreError, StoreUnavailable
from paceline.job import JobRecord
from paceline.lifecycle.actions import StoreActions
from paceline.lifecycle.declare import Declarations
from paceline.stores.interface import Note

log = logging.getLogger("paceline.worker")

MOST_LINES = 1000
"""So many log lines of one job are kept while the store is away; the oldest go."""


class Notes(StoreActions):
    """The actions of jobs that a worker runs. What the store cannot take now is kept: latest progress, all lines."""

    __slots__ = ("_away", "_kept", "_lock", "wake")

    def __init__(self, declarations: Declarations) -> None:
        super().__init__(declarations)
        self._kept: dict[str, list[Note]] = {}
        self._lock = threading.Lock()
        self._away = False
        self.wake: Callable[[], None] = lambda: None
        """Called, in any thread, when there is something to write later."""

    def __bool__(self) -> bool:
        return bool(self._kept)

    async def note(self, record: JobRecord, progress: float | None, message: str | None, log: str | None) -> None:
        """Write it, or keep it while the store is away; `LeaseLost` when the job is no longer this worker's."""
        note = Note(id=record.id, fence=record.fence, progress=progress, message=message, log=log)
        store = self._declarations.store
        notes = [*self._take(record.id), note] if self._kept else [note]
        try:
            lost = await store.note(notes)
        except StoreUnavailable as error:
            self._keep(notes, error)
            return
        self._away = False
        if lost:
            raise LeaseLost(record.id)

    async def write(self, fence_of: Callable[[str], int | None]) -> None:
        """Write what was kept, under the fences of the runs as they are now."""
        for job_id in list(self._kept):
            notes = self._take(job_id)
            fence = fence_of(job_id)
            if fence is None:
                continue
            try:
                await self._declarations.store.note([msgspec.structs.replace(note, fence=fence) for note in notes])
                self._away = False
            except StoreUnavailable as error:
                self._keep(notes, error)
                raise
            except StoreError as error:
                log.warning("job %s: what it reported while the store was away is not recorded: %s", job_id, error)

    def _take(self, job_id: str) -> list[Note]:
        with self._lock:
            return self._kept.pop(job_id, [])

    def _keep(self, notes: list[Note], error: StoreUnavailable) -> None:
        with self._lock:
            first, self._away = not self._away, True
            kept = [*notes, *self._kept.get(notes[0].id, [])]
            latest = [note for note in kept if note.progress is not None][-1:]
            lines = [note for note in kept if note.log is not None][-MOST_LINES:]
            self._kept[notes[0].id] = latest + lines
        if first:
            log.warning("progress and log lines of jobs are kept until the store takes them: %s", error)
        self.wake()
