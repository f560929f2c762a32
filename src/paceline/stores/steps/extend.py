"""Beside the run: prolong leases, write progress and log lines, say which workers live."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.clock import Micros
from paceline.stores.interface import Extended, Lease, Note, WorkerRecord
from paceline.stores.steps.state import Leased, State
from paceline.text import last_lines


def extend(state: State, worker: str, leases: Sequence[Lease], lease: Micros) -> Extended:
    """Prolong leases of jobs and permits; tells which are lost and which jobs somebody wants cancelled."""
    now = state.now()
    known = state.workers.get(worker)
    if known is not None:
        state.workers[worker] = msgspec.structs.replace(known, seen_at=now)
    lost, cancel = [], []
    renewed: Leased = []
    for held in leases:
        row = state.rows.get(held.id)
        holder = row if row is not None else state.permits.get(held.id)
        if holder is None or not holder.active or holder.fence != held.fence:
            lost.append(held.id)
            continue
        holder.lease_until = now + lease
        renewed.append((holder, held.fence))
        if row is not None and row.cancel_asked:
            cancel.append(held.id)
    if renewed:
        state.lease(renewed, now + lease)
    return Extended(lost, cancel)


def note(state: State, notes: Sequence[Note]) -> list[str]:
    """Progress and log lines of runs that still hold their lease; returns the ids of the others."""
    lost = []
    for said in notes:
        row = state.rows.get(said.id)
        if row is None or not row.active or row.fence != said.fence:
            lost.append(said.id)
            continue
        if said.progress is not None:
            row.progress = said.progress
            row.message = said.message
        if said.log is not None:
            row.logs = last_lines((*row.logs, said.log))
    return lost


def register(state: State, worker: WorkerRecord) -> None:
    """A worker says which queues and tasks it serves."""
    state.workers[worker.id] = msgspec.structs.replace(worker, seen_at=state.now())


def unregister(state: State, worker: str) -> None:
    """A worker stops."""
    state.workers.pop(worker, None)
    state.last_claims.pop(worker, None)


def workers(state: State) -> list[WorkerRecord]:
    """Who serves which queues."""
    return list(state.workers.values())
