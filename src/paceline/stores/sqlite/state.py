"""What the steps work on, in a file: read when asked for, remembered until somebody else writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from paceline.clock import NEVER, Clock, Micros
from paceline.errors import StoreUnavailable
from paceline.job import ACTIVE, CANCELLED, COMPLETED, DELAYED, FAILED, WAITING, JobState, NewJob
from paceline.stores.interface import Filter
from paceline.stores.sqlite import save
from paceline.stores.sqlite.dirty import Dirty
from paceline.stores.sqlite.line import PAGE, SqliteLine
from paceline.stores.sqlite.meters import SqliteMeter
from paceline.stores.sqlite.news import News
from paceline.stores.sqlite.places import LastClaims, Lines, Permits, Rows, WaitingPermits, Workers
from paceline.stores.sqlite.registry import SqliteRegistry
from paceline.stores.sqlite.rows import QUEUE, SqliteRow, read_row
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.lanes import Keys, Lane
from paceline.stores.steps.line import Line
from paceline.stores.steps.registry import LaneMeter
from paceline.stores.steps.rows import Row
from paceline.stores.steps.sleepers import Sleepers
from paceline.stores.steps.state import Leased, Permit, State

JOBS = statements("jobs")
LANES = statements("lanes")
SPACE = statements("space")
REMEMBERED = 20_000
"""So many jobs stay in memory between transactions."""
REMEMBERED_BYTES = 64 * 1024 * 1024
"""And payloads of so much, all in all."""
PRUNED = 5_000
"""So many finished jobs are removed at once: others want to write too."""


class SqliteState(State):
    """One namespace of a file, as one process sees it."""

    def __init__(self, clock: Clock, namespace: str, sleepers: Sleepers) -> None:
        super().__init__(clock)
        self.namespace = namespace
        self.db: sqlite3.Connection
        self.space = 0
        self.version = -1
        self.rules_version = -1
        self.ears_version = -1
        self.news_number = 0
        self.ids = 0
        self.dirty = Dirty()
        self.replaced = self.declared_again = False
        """The path leads to another file, which may not know what this program declared; it is told in this step."""
        self.outdated = False
        """Something was written past what is in memory: forget it when the transaction ends."""
        self.sleepers: News = News(sleepers)  # type: ignore[assignment]
        self.registry: SqliteRegistry = SqliteRegistry(self)
        self.forget_jobs()

    # the transaction

    def begin(self, db: sqlite3.Connection) -> None:
        """Look whether somebody else has written since."""
        self.db = db
        row = db.execute(SPACE["find"], (self.namespace,)).fetchone()
        if row is None:
            raise StoreUnavailable(
                "the file was emptied or replaced while it was in use; nothing was changed, try again"
            )
        self._written_before = db.total_changes
        self.space, version, rules_version, ears_version, news, latest, orders, fences, permits, self.ids = row
        self.orders, self.fences = orders, fences
        self._ids_before = self.ids
        self.news_number = news
        self._latest = max(self._latest, latest)
        if rules_version != self.rules_version:
            self.registry.read_rules()
            self.rules_version = rules_version
        if version != self.version:
            self.version = version
            self.forget_jobs()
            self.registry.forget()
            self.waiting_permits = WaitingPermits(json.loads(permits))
        if ears_version != self.ears_version:
            self.sleepers.ears = dict(db.execute(SPACE["ears"], (self.space,)).fetchall())
            self.ears_version = ears_version
        self.rows.absent.clear()  # type: ignore[attr-defined]

    def changed(self) -> bool:
        """True when the transaction has to be written, or some of it was when a step read what it had changed."""
        written = self.db.total_changes != self._written_before
        moved = self.ids != self._ids_before
        rules = self.registry.rules_changed or self.waiting_permits.changed
        lines: Any = self.lines.values()
        touched = any(line.settings_changed or line.numbers() != line.written for line in lines)
        return written or moved or rules or touched or self.outdated or self.dirty.any() or self.sleepers.any()

    def end(self) -> None:
        """Write what changed."""
        save.everything(self)
        self.replaced = self.replaced and not self.declared_again
        if self.outdated or len(self.rows) > REMEMBERED or self._weight > REMEMBERED_BYTES:
            self.version = -1
            self.outdated = False

    def connected(self) -> None:
        """The file may be another one, with a time of its own."""
        self._latest = 0

    def forget(self) -> None:
        """The transaction was undone: nothing in memory is true."""
        self.declared_again = False
        self.version = self.rules_version = self.ears_version = -1
        self.dirty = Dirty()
        self.registry.rules_changed = False
        self.registry.forget_meters()
        self.sleepers.clear()
        self.outdated = False
        self.forget_jobs()

    def forget_jobs(self) -> None:
        """Somebody else has written: read everything anew."""
        self.rows = Rows(self)
        self.lines = Lines(self)
        self.permits = Permits(self)
        self.workers: Any = Workers(self)
        self.last_claims: Any = LastClaims(self)
        self.waiting_permits: WaitingPermits = WaitingPermits()
        self._by_number: dict[int, SqliteRow] = {}
        self._weight = 0
        self._queue_names: dict[int, str] = {}
        self.first_end: Micros = 0
        """No lease ends before this instant, as far as is known."""

    def next_id(self) -> int:
        self.ids += 1
        return self.ids

    def write_waits(self) -> None:
        """Lanes and delayed jobs are about to be read."""
        save.jobs(self)
        save.waits(self)

    def write_lanes(self) -> None:
        """Lanes are about to be read in order."""
        save.lanes(self)

    def write_all(self) -> None:
        """Everything about jobs is about to be read."""
        save.places(self)

    # jobs and queues

    def expect(self, ids: Iterable[str]) -> None:
        wanted = [job_id for job_id in ids if job_id not in self.rows]
        if len(wanted) > 1:
            for columns in self.db.execute(JOBS["by_ids"], (json.dumps(wanted), self.space)).fetchall():
                self.take_row(columns)
            self.rows.absent.update(job_id for job_id in wanted if job_id not in self.rows)  # type: ignore[attr-defined]

    def take_row(self, columns: Sequence[Any]) -> SqliteRow:
        """The job of a row that was read: the one in memory, if it is there."""
        row = self._by_number.get(columns[0])
        if row is None:
            row = self._by_number[columns[0]] = read_row(self, columns)
            self.rows[row.job.id] = row
            self._weight += len(row.job.data)
        return row

    def row_by_number(self, number: int) -> Row | None:
        found = self.rows_by_number([number])
        return found[0] if found else None

    def rows_by_number(self, numbers: Sequence[int]) -> list[Row]:
        """These jobs, in the order of their numbers."""
        unknown = [number for number in numbers if number not in self._by_number]
        if unknown:
            for columns in self.db.execute(JOBS["by_numbers"], (json.dumps(unknown),)).fetchall():
                self.take_row(columns)
        return [self._by_number[number] for number in numbers if number in self._by_number]

    def new_row(self, job: NewJob, order: int, now: Micros, due_at: Micros) -> Row:
        return SqliteRow(job, order, now, due_at)

    def add(self, row: Row) -> None:
        added: Any = row
        line: Any = self.line(row.job.queue)
        added.n = (line.number << QUEUE) + abs(row.order)
        self.rows[row.job.id] = row
        self._by_number[added.n] = added
        self._weight += len(row.job.data)
        self.dirty.new[added] = None
        self.rows.absent.discard(row.job.id)  # type: ignore[attr-defined]

    def discard(self, row: Any) -> None:
        del self.rows[row.job.id]
        self.rows.absent.add(row.job.id)  # type: ignore[attr-defined]
        self._by_number.pop(row.n, None)
        self.dirty.rows.pop(row, None)
        if row in self.dirty.new:
            del self.dirty.new[row]
        else:
            self.dirty.removed.append(row.n)

    def let_go(self, row: SqliteRow) -> None:
        """A finished job is written: nobody asks for it in a hurry."""
        self.rows.pop(row.job.id, None)
        self._by_number.pop(row.n, None)

    def touch(self, holder: Any) -> None:
        if isinstance(holder, Permit):
            self.permits[holder.id] = holder
            return
        as_asked = DELAYED if holder.due_at > holder.created_at else WAITING
        if holder.state is not as_asked or holder not in self.dirty.new:
            # There is nothing to say about a new job that does what it was asked to.
            self.dirty.rows[holder] = None

    def jobs_of(self, line: Any, seen: JobState | None, now: Micros) -> list[Row]:
        return self.rows_by_number(self.numbers_of(line, seen, now))

    def numbers_of(self, line: Any, seen: JobState | None, now: Micros) -> list[int]:
        """The jobs of a queue by their numbers."""
        self.write_all()
        here = {"first": line.number << QUEUE, "end": (line.number + 1) << QUEUE, "space": self.space, "state": seen}
        if seen is None:
            found = self.db.execute(JOBS["in_queue"], here)
        elif seen is WAITING:
            found = self.db.execute(JOBS["in_lanes"], (line.number, line.number, now))
        elif seen is DELAYED:
            found = self.db.execute(JOBS["delayed"], (line.number, now))
        elif seen is ACTIVE:
            found = self.db.execute(JOBS["active"], here)
        else:
            name = "in_state" if seen is COMPLETED else "failed_or_cancelled"
            found = self.db.execute(JOBS[name], here)
        return [number for (number,) in found.fetchall()]

    def page(self, wanted: Filter, now: Micros) -> list[Row]:
        self.write_all()
        line: Any = self.line(wanted.queue)
        low, high = line.number << QUEUE, (line.number + 1) << QUEUE
        if wanted.after is not None:
            after: Any = self.row(wanted.after)
            low, high = (low, after.n) if wanted.newest_first else (after.n, high)
        names = {ACTIVE: "page_active", FAILED: "page_failed", CANCELLED: "page_failed"}
        statement = JOBS[names.get(wanted.state, "page") if wanted.state is not None else "page"]
        found = self.db.execute(
            statement.replace(" LIMIT", " DESC LIMIT") if wanted.newest_first else statement,
            {
                "space": self.space,
                "low": low,
                "high": high,
                "task": wanted.task,
                "grp": wanted.group,
                "state": wanted.state or "",
                "now": now,
                "most": wanted.limit,
            },
        ).fetchall()
        return self.rows_by_number([number for (number,) in found])

    def kept_too_long(self, now: Micros) -> list[Row]:
        self.write_all()
        found = self.db.execute(JOBS["kept_too_long"], (self.space, now, PRUNED)).fetchall()
        return self.rows_by_number([number for (number,) in found])

    def line(self, name: str) -> Line:
        found: Line | None = dict.get(self.lines, name)
        if found is None:
            found = self.lines.get(name)
        if found is None:
            number = self.next_id()
            self.db.execute(LANES["create_queue"], (number, self.space, name))
            found = self.lines[name] = SqliteLine(self, name, number)
            self._queue_names[number] = name
            self.outdated = self.outdated or not self.db.in_transaction
        return found

    def read_line(self, name: str) -> Line | None:
        row = self.db.execute(LANES["queue"], (self.space, name)).fetchone()
        if row is None:
            return None
        line = SqliteLine(self, name, row[0])
        self.lines[name] = line
        line.read(*row[1:])
        return line

    def drop_line(self, name: str) -> None:
        """A queue is gone, and everything that was filed in it."""
        line: Any = self.line(name)
        self.write_all()
        for cls in line.classes.values():
            self.db.execute(LANES["drop_lanes"], (cls.number,))
            self.db.execute(LANES["drop_class"], (cls.number,))
            cls.marked = True
        self.db.execute(LANES["drop_groups"], (line.number,))
        self.db.execute("DELETE FROM paceline_start WHERE queue = ?", (line.number,))
        self.db.execute(LANES["drop_queue"], (line.number,))
        self.outdated = True

    def all_lines(self) -> Sequence[Line]:
        names = self.db.execute(LANES["queue_names"], (self.space,)).fetchall()
        return [self.line(name) for (name,) in names]

    def queue_name(self, number: int) -> str:
        found = self._queue_names.get(number)
        if found is None:
            (found,) = self.db.execute(LANES["queue_name"], (number,)).fetchone()
            self._queue_names[number] = found
        return found

    def lanes_under(self, meter: SqliteMeter) -> list[Lane]:
        """The lanes of a group, in whatever queue, that meet a per-group limit."""
        name, group = meter.key
        names = self.db.execute(LANES["of_group"], (group, self.space)).fetchall()
        lines: Any = {**dict.fromkeys(self.lines), **dict.fromkeys(name for (name,) in names)}
        groups = [self.line(line).groups.get(group) for line in lines]
        lanes = [(cls, lane) for found in groups if found is not None for cls, lane in found.lanes.items()]
        return [lane for cls, lane in lanes if any(limit.name == name for limit in cls.group_limits)]

    def set_page(self, slots: int) -> None:
        """A claim wants so many jobs: read so many at once."""
        lines: Any = self.lines.values()
        for line in lines:
            line.page = max(PAGE, min(slots, 1000))

    # leases

    def keys_from(self, text: str) -> Keys:
        """The keys of a lease; those whose limit was dropped since are gone."""
        found = [(self.registry.by_number(number), cost) for number, cost in json.loads(text)]
        return [(meter, cost) for meter, cost in found if meter is not None]

    def keys_text(self, keys: Keys) -> str:
        return json.dumps([(meter.number, cost) for meter, cost in keys])  # type: ignore[attr-defined]

    def unpark(self, keys: Keys) -> None:
        # The lanes under a key are only looked for when one of them was parked.
        meter: Any
        for meter, _ in keys:
            if meter.parked:
                meter.parked = False
                if any([lane.unpark() for lane in meter.lanes]):
                    self.sleepers.wake_all()
            if meter.awaited:
                meter.awaited = False
                self.sleepers.wake_all()

    def lease(self, holders: Leased, until: Micros) -> None:
        self.first_end = min(self.first_end, until)

    def lease_may_be_over(self, now: Micros) -> bool:
        return self.first_end <= now

    def leases_over(self, now: Micros, most: int) -> Leased:
        if self.first_end > now:
            return []
        over = self._over(now, most)
        if not over:
            self.next_lease_end()
        return over

    def _over(self, now: Micros, most: int) -> Leased:
        save.lives(self)
        numbers = self.db.execute(JOBS["leases_over"], (self.space, now, most)).fetchall()
        over: Leased = [(row, row.fence) for row in self.rows_by_number([number for (number,) in numbers])]
        permits = self.db.execute(JOBS["permits_over"], (self.space, now, most)).fetchall()
        over += [(self.permits.get(permit), 0) for (permit,) in permits]  # type: ignore[misc]
        return sorted(over, key=lambda pair: (pair[0].lease_until, pair[1]))[:most]

    def next_lease_end(self) -> Micros:
        save.lives(self)
        (end,) = self.db.execute(JOBS["next_lease_end"], {"space": self.space, "never": NEVER}).fetchone()
        self.first_end = end
        return int(end)

    def over_under(self, meter: LaneMeter, now: Micros) -> list[str]:
        found = self._over(now, 1_000_000)
        return [holder.id for holder, _ in found if any(held is meter for held, _ in holder.keys)]
