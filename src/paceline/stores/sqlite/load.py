"""Jobs of a file, leases, permits and workers: loaded for a step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from heapq import heappush
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.clock import Micros
from paceline.job import ACTIVE, DELAYED, WAITING, NewJob
from paceline.stores.interface import WorkerRecord
from paceline.stores.sqlite.rows import QUEUE, Stored, life_of, read_row, read_start
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.lanes import Keys, Lane
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.rows import Row
from paceline.stores.steps.state import Leased, Permit

if TYPE_CHECKING:
    from paceline.stores.sqlite.unit import Unit

JOBS = statements("jobs")
LANES = statements("lanes")
SPACE = statements("space")


class Loader:
    """Brings jobs to hand, where steps find them, and who holds, works and claims."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._queue_names: dict[int, str] = {}

    def reserved(self) -> None:
        """What reservations are about: the lanes under their keys, and the jobs that have them, in their lanes."""
        state = self.unit.state
        if state.registry.reserved:
            self.unit.lanes.lanes_under(list(state.registry.reserved))
            self.place(self.rows(meter.reserved_by for meter in state.registry.reserved if meter.reserved_by))

    def rows(self, ids: Iterable[str]) -> list[Row]:
        """Those of some jobs that exist, with the queues they are in."""
        unit = self.unit
        at_hand, remembered, jobs, by_n, queues = (
            unit.state.rows,
            unit.remembered,
            unit.jobs,
            unit.by_n,
            unit.state.queues,
        )
        ids = list(dict.fromkeys(ids))
        wanted: list[str] = []
        known: list[Row] = []
        for job_id in ids:
            if job_id not in at_hand:
                row = remembered.pop(job_id, None)
                if row is None:
                    wanted.append(job_id)
                else:
                    stored = jobs[row]
                    stored.life = life_of(row)
                    by_n[stored.n] = row
                    at_hand[job_id] = queues[row.job.queue].rows[job_id] = row
                    known.append(row)
                    if row.keys:
                        unit.lanes.bring_back([meter.key[1] for meter, _ in row.keys])
        self._unique_of(known)
        if len(wanted) == 1:
            self.take_rows(unit.db.execute(JOBS["by_id"], (wanted[0], unit.space)).fetchall())
        elif wanted:
            self.take_rows(unit.db.execute(JOBS["by_ids"], (json.dumps(wanted), unit.space)).fetchall())
        return [at_hand[job_id] for job_id in ids if job_id in at_hand]

    def rows_numbered(self, numbers: Sequence[int]) -> list[Row]:
        """Those of some jobs that exist, in the order given."""
        by_n, at_hand = self.unit.by_n, self.unit.state.rows
        wanted = [number for number in numbers if number not in by_n]
        if wanted:
            self.take_rows(self.unit.db.execute(JOBS["by_numbers"], (json.dumps(wanted),)).fetchall())
        found = [by_n[number] for number in numbers if number in by_n]
        return [row for row in found if at_hand.get(row.job.id) is row]

    def take_rows(self, rows: Iterable[Sequence[Any]]) -> list[Row]:
        """The jobs of rows that were read, those left out that are at hand or were removed in this step."""
        unit = self.unit
        by_n, at_hand, jobs, remembered = unit.by_n, unit.state.rows, unit.jobs, unit.remembered
        queues: dict[int, QueueState] = {}
        taken: list[Row] = []
        lived: list[tuple[Row, str | None]] = []
        for columns in rows:
            n = columns[0]
            if n in by_n:
                continue
            number = n >> QUEUE
            queue = queues.get(number)
            if queue is None:
                queue = queues[number] = self._numbered(number)
            row, keys = read_row(queue.name, columns)
            job_id = row.job.id
            remembered.pop(job_id, None)
            by_n[n] = row
            at_hand[job_id] = queue.rows[job_id] = row
            jobs[row] = Stored(n, columns[9])
            if columns[10] is not None:
                lived.append((row, keys))
            taken.append(row)
        if lived:
            charged = [json.loads(keys) for _, keys in lived if keys is not None]
            unit.meters.by_numbers(number for keys in charged for number, _ in keys)
            for row, found in lived:
                if found is not None:
                    row.keys = unit.meters.keys_from(found)
                stored = jobs[row]
                stored.state, stored.life = row.state, life_of(row)
        self._unique_of(taken)
        return taken

    def _numbered(self, number: int) -> QueueState:
        name = self._queue_names.get(number)
        if name is None:
            (name,) = self.unit.db.execute(LANES["queue_name"], (number,)).fetchone()
            self._queue_names[number] = name
        return self.unit.lanes.known(name)

    def place(self, rows: Iterable[Row]) -> None:
        """Put jobs that have not started where steps find them: into their lanes, or among the delayed."""
        waiting = [row for row in rows if row.entry is None and row.state in (WAITING, DELAYED)]
        by_queue: dict[str, list[Row]] = {}
        for row in waiting:
            by_queue.setdefault(row.job.queue, []).append(row)
        for name, found in by_queue.items():
            queue = self.unit.lanes.known(name)
            self.ways_back(found)
            for row in found:
                if row.state is DELAYED:
                    self._place_delayed(queue, row)
                else:
                    lane = queue.lane(queue.class_for(row.job.task), queue.group(row.job.group))
                    self._place_waiting(lane, row)

    def _place_delayed(self, queue: QueueState, row: Row) -> None:
        row.entry = entry = (row.due_at, row.order, row)
        heappush(queue.delayed, entry)
        self.unit.jobs[row].place = (False, self.unit.numbers[queue], row.due_at, row.order)

    def _place_waiting(self, lane: Lane, row: Row) -> None:
        lane.place(row)
        self.unit.jobs[row].place = (True, self.unit.numbers[lane], row.job.priority, row.order)

    def ways_back(self, rows: Iterable[Row]) -> None:
        """Where jobs that run go when they wait again: their groups, and what their lanes meet."""
        by_queue: dict[str, list[NewJob]] = {}
        for row in rows:
            by_queue.setdefault(row.job.queue, []).append(row.job)
        for name, jobs in by_queue.items():
            self.unit.lanes.shared_meters(name, [job.task for job in jobs])
            self.unit.lanes.group_meters(name, jobs)
            self.unit.lanes.groups(self.unit.lanes.known(name), [job.group for job in jobs])

    def rows_of(self, queue: QueueState) -> list[Row]:
        """Every job of a queue."""
        number = self.unit.numbers[queue]
        here = {"first": number << QUEUE, "end": (number + 1) << QUEUE}
        return self.rows_numbered([n for (n,) in self.unit.db.execute(JOBS["in_queue"], here).fetchall()])

    def place_found(self, lane: Lane, n: int) -> None:
        """A job that the file has in a lane; one that this step has moved is elsewhere by now."""
        row = self.unit.by_n[n]
        if row.entry is None and row.state is WAITING and self.unit.state.rows.get(row.job.id) is row:
            self._place_waiting(lane, row)

    def due(self, queue: QueueState, now: Micros, most: int) -> None:
        """Delayed jobs whose time has come, so many and one more, and the first one whose time has not."""
        number = self.unit.numbers.get(queue)
        if number is None or not queue.counts[DELAYED]:
            return
        found = self.unit.db.execute(LANES["due_jobs"], (number, now, most + 1)).fetchall()
        if len(found) <= most:
            found += self.unit.db.execute(LANES["next_due"], (number, now)).fetchall()
        self.take_rows(found)
        at_hand = [self.unit.by_n[columns[0]] for columns in found]
        self.place(row for row in at_hand if self.unit.state.rows.get(row.job.id) is row)

    def unique(self, wanted: Iterable[tuple[QueueState, str]]) -> None:
        """The jobs that have these unique keys."""
        unit = self.unit
        for queue, key in wanted:
            number = unit.numbers.get(queue)
            if number is None or (queue, key) in unit.unique:
                continue
            found = unit.db.execute(JOBS["unique"], (number, key)).fetchone()
            unit.unique[queue, key] = found[0] if found else None
            if found:
                (row,) = self.rows_numbered([found[0]]) or (None,)
                if row is not None:
                    queue.unique[key] = row

    def _unique_of(self, rows: list[Row]) -> None:
        keyed = [row for row in rows if row.job.unique is not None]
        if keyed:
            self.unique((self.unit.lanes.known(row.job.queue), row.job.unique or "") for row in keyed)

    def starts(self, rows: Iterable[Row]) -> None:
        """Where the log has the starts of these runs."""
        for row in rows:
            queue = self.unit.lanes.known(row.job.queue)
            number = self.unit.numbers[queue]
            found = self.unit.db.execute(JOBS["start"], (number, row.fence)).fetchone()
            if found is not None and row.fence not in queue.starts:
                queue.starts[row.fence] = read_start(found)
                self.unit.starts[queue, row.fence] = queue.starts[row.fence]

    def leases(self, now: Micros, most: int, ending: int = 0) -> None:
        """Leases that are over, so many and one more, and the first one that is not, whatever this step ends."""
        state = self.unit.state
        state.lease_ends.clear()
        jobs = self._first_leases("leases", now, ending + 1, most)
        rows = self.rows_numbered([n for n, until in jobs if until <= now])
        ends: dict[Micros, Leased] = {}
        for n, until in jobs:
            row = self.unit.by_n.get(n)
            if row is not None and row.state is ACTIVE:
                ends.setdefault(until, []).append((row, row.fence))
        for until, holders in ends.items():
            state.lease(holders, until)
        self._free(row.keys for row in rows)
        self.ways_back(rows)
        permits = self._first_leases("permit_leases", now, len(state.permits) + 1, most)
        self.permits([permit for permit, until in permits if until <= now])
        for permit, until in permits:
            holder = state.permits.get(permit)
            if holder is not None and holder.lease_until == until:
                state.lease([(holder, 0)], until)
        self._free(holder.keys for holder in state.permits.values())
        unknown = [until for n, until in jobs if until > now and n not in self.unit.by_n]
        unknown += [until for permit, until in permits if until > now and permit not in state.permits]
        if unknown:
            # Nobody asks whose lease it is: only when it ends.
            state.lease([(Permit("", [], 0, min(unknown)), 0)], min(unknown))

    def _first_leases(self, name: str, now: Micros, few: int, most: int) -> list[tuple[Any, Micros]]:
        found: list[tuple[Any, Micros]] = self.unit.db.execute(JOBS[name], (self.unit.space, few)).fetchall()
        if len(found) == few and found[-1][1] <= now:
            found = self.unit.db.execute(JOBS[name], (self.unit.space, few + most + 1)).fetchall()
        return found

    def _free(self, held: Iterable[Keys]) -> None:
        for keys in held:
            self.unit.lanes.parked_under(keys)

    def permits(self, ids: Iterable[str]) -> None:
        """Permits by their names."""
        unit = self.unit
        for permit in ids:
            if permit not in unit.state.permits and permit not in unit.permits:
                row = unit.db.execute(JOBS["permit"], (unit.space, permit)).fetchone()
                unit.permits[permit] = row
                if row is not None:
                    unit.meters.by_numbers(number for number, _ in json.loads(row[0]))
                    found = unit.state.permits[permit] = Permit(permit, unit.meters.keys_from(row[0]), row[1], row[2])
                    found.gate = row[3]

    def worker(self, worker: str) -> None:
        """A worker's record, and its latest claim."""
        unit = self.unit
        if worker not in unit.workers:
            row = unit.db.execute(SPACE["worker"], (unit.space, worker)).fetchone()
            found = unit.workers[worker] = None if row is None else msgspec.json.decode(row[0], type=WorkerRecord)
            if found is not None:
                unit.state.workers[worker] = found

    def last_claim(self, worker: str) -> None:
        """The latest claim of a worker, for when its answer is lost."""
        unit = self.unit
        if worker not in unit.claims:
            row = unit.db.execute(SPACE["claimed"], (unit.space, worker)).fetchone()
            unit.claims[worker] = None
            if row is not None:
                taken = [(job_id, fence, guard) for job_id, fence, guard in json.loads(row[1])]
                unit.claims[worker] = unit.state.last_claims[worker] = (row[0], taken)
