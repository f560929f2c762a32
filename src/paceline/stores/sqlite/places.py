"""What the steps see as dictionaries, and what is rows of a file: read when asked for, remembered while it is true."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.stores.interface import WorkerRecord
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.line import Line
from paceline.stores.steps.rows import Row
from paceline.stores.steps.state import Permit

if TYPE_CHECKING:
    from paceline.stores.sqlite.state import SqliteState

JOBS = statements("jobs")
SPACE = statements("space")


class Rows(dict[str, Row]):
    """Jobs by id: those that were read, and the file behind them."""

    def __init__(self, state: SqliteState) -> None:
        super().__init__()
        self._state = state
        self.absent: set[str] = set()

    def get(self, job_id: str, default: Any = None) -> Any:
        found = super().get(job_id)
        if found is None and job_id not in self.absent:
            columns = self._state.db.execute(JOBS["by_id"], (job_id, self._state.space)).fetchone()
            if columns is not None:
                return self._state.take_row(columns)
            self.absent.add(job_id)
        return found


class Lines(dict[str, Line]):
    """Queues by name."""

    def __init__(self, state: SqliteState) -> None:
        super().__init__()
        self._state = state

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name)
        return found if found is not None else self._state.read_line(name)

    def __delitem__(self, name: str) -> None:
        self._state.drop_line(name)
        super().__delitem__(name)


class Permits(dict[str, Permit]):
    """Permits by id."""

    def __init__(self, state: SqliteState) -> None:
        super().__init__()
        self._state = state

    def get(self, permit: str, default: Any = None) -> Any:
        found = super().get(permit)
        if found is None:
            state = self._state
            row = state.db.execute(JOBS["permit"], (state.space, permit)).fetchone()
            if row is not None and permit not in state.dirty.permits:
                found = Permit(permit, state.keys_from(row[0]), row[1], row[2])
                found.gate = row[3]
                super().__setitem__(permit, found)
        return found

    def __setitem__(self, permit: str, value: Permit) -> None:
        super().__setitem__(permit, value)
        self._state.dirty.permits[permit] = value

    def __delitem__(self, permit: str) -> None:
        super().pop(permit, None)
        self._state.dirty.permits[permit] = None


class Workers:
    """Workers, as the file knows them."""

    def __init__(self, state: SqliteState) -> None:
        self._state = state

    def get(self, worker: str) -> WorkerRecord | None:
        state = self._state
        row = state.db.execute(SPACE["worker"], (state.space, worker)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=WorkerRecord)

    def __setitem__(self, worker: str, record: WorkerRecord) -> None:
        text = msgspec.json.encode(record).decode()
        self._state.db.execute(SPACE["save_worker"], (self._state.space, worker, text))
        self._state.outdated = True

    def pop(self, worker: str, default: None = None) -> None:
        self._state.db.execute(SPACE["drop_worker"], (self._state.space, worker))
        self._state.outdated = True

    def values(self) -> list[WorkerRecord]:
        rows = self._state.db.execute(SPACE["workers"], (self._state.space,)).fetchall()
        return [msgspec.json.decode(row[0], type=WorkerRecord) for row in rows]


class LastClaims:
    """Each worker's latest claim, for when its answer is lost."""

    def __init__(self, state: SqliteState) -> None:
        self._state = state

    def get(self, worker: str, default: Any) -> Any:
        state = self._state
        if worker in state.dirty.claimed:
            return state.dirty.claimed[worker]
        row = state.db.execute(SPACE["claimed"], (state.space, worker)).fetchone()
        return default if row is None else (row[0], json.loads(row[1]))

    def __setitem__(self, worker: str, claim: tuple[str, list[tuple[str, int]]]) -> None:
        self._state.dirty.claimed[worker] = claim

    def pop(self, worker: str, default: None = None) -> None:
        self._state.dirty.claimed.pop(worker, None)
        self._state.db.execute(SPACE["drop_claimed"], (self._state.space, worker))


class WaitingPermits(set[str]):
    """Permits that are waited for and have reserved room."""

    changed = False

    def add(self, permit: str) -> None:
        super().add(permit)
        self.changed = True

    def discard(self, permit: object) -> None:
        if permit in self:
            super().discard(permit)
            self.changed = True
