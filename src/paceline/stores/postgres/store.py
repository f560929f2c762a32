"""The PostgreSQL store: exact limits for a fleet of workers. A method is one call of one function in the database."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.clock import SECOND, Clock, Micros
from paceline.codec import MAX_PAYLOAD
from paceline.errors import JobNotFound, StoreError, StoreUnavailable
from paceline.job import FINISHED, JobRecord, Move
from paceline.stores.interface import (
    Ask,
    Begun,
    Claim,
    Decided,
    Extended,
    Finish,
    Lease,
    Note,
    WorkerRecord,
)
from paceline.stores.postgres import schema as schemas
from paceline.stores.postgres.adding import Adding
from paceline.stores.postgres.arrays import arrays
from paceline.stores.postgres.calls import Sending
from paceline.stores.postgres.ending import REFUSED, is_refusal, write_each
from paceline.stores.postgres.faults import as_ours
from paceline.stores.postgres.names import check_schema
from paceline.stores.postgres.queues import QueueCalls, states_of
from paceline.stores.postgres.reading import Reading
from paceline.stores.postgres.rows import FINISH_KINDS, failed_in, finish_columns, guarded, record, started
from paceline.stores.postgres.texts import BEGUN, CLAIM, CLAIMED, DECIDE_AGAIN, FINISH, GET
from paceline.stores.postgres.urls import check_url
from paceline.stores.server_clock import ServerClock
from paceline.stores.steps.sleepers import Sleeper

POLL: Micros = SECOND
"""How often somebody who waits for a job's end looks, in case nobody told."""


class PostgresStore(Adding, QueueCalls, Reading):
    """Jobs and limits in PostgreSQL: `postgresql://…`. Safe to use from several threads and event loops."""

    never_blocks = False

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        schema: str = "paceline",
        clock: Clock | None = None,
        max_payload: int = MAX_PAYLOAD,
        migrate: bool = True,
        pooler: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(check_url(url), check_schema(schema), namespace, pooler, options)
        self.clock: Clock = clock or ServerClock()
        self.namespace = namespace
        self.max_payload = max_payload
        self._migrate = migrate

    def __repr__(self) -> str:
        return f"<PostgresStore {self.namespace!r}>"

    async def open(self, within: object = None) -> None:
        if self._space is not None:
            return
        with as_ours():
            async with self.connections.one() as connection:
                await self.calls.opened(connection, self._migrate)
        self._space = await self.calls.value("select paceline.space_of($1)", self.namespace)
        if self.ears.busy:
            # Somebody sleeps since before the store was closed.
            self.start_listening()

    async def migrate(self) -> bool:
        """Bring the schema to this version; True when there was something to do."""
        with as_ours():
            async with self.connections.one() as connection:
                return await schemas.migrate(connection, self.names)

    def script(self, since: int = 0) -> str:
        """The SQL that makes the schema, or brings it here from an earlier format, to be run by hand."""
        return schemas.script(self.schema, since)

    async def close(self) -> None:
        self._space = None
        await self.stop_listening()
        self.connections.close()
        # Whoever opens it again may find another database, or an emptied one.
        self._space = None
        self._queues.clear()
        self.ears.wake_all()

    # a job's life

    async def claim(self, ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
        try:
            return await self._claim(ask, finishes)
        except REFUSED as error:
            if not finishes or not is_refusal(error):
                raise
        # Ends before anything else: the next claim, which comes at once, is asked without them.
        lost = await write_each(self._finish, finishes)
        now = self.clock.now()
        return Claim(jobs=[], now=now, ask_again_at=now, lost=lost)

    async def _claim(self, ask: Ask, finishes: Sequence[Finish]) -> Claim:
        sending = Sending(warm=not self.clock.virtual and not self._pooler)
        queues = [await self.queue_id(name) for name in ask.queues]
        row = await self.calls.row(
            CLAIM,
            await self.space(),
            self.given_now(),
            queues,
            ask.slots,
            ask.worker,
            ask.lease,
            ask.claim_id,
            None if ask.tasks is None else sorted(ask.tasks),
            list(ask.also),
            ask.room,
            ask.most,
            *arrays(FINISH_KINDS, finish_columns(finishes, self.least_guard)),
            self.ears.wants_empty,
            again=bool(ask.claim_id),
            sending=sending,
        )
        now, again_at, needs_room, waited, lost, wakes, seqs = row[:7]
        if now is None:
            # Going on in what took its place would start jobs without the limits that were declared.
            raise StoreError(
                f"the tables of schema {self.schema!r} were emptied or made anew while this program runs: nothing "
                "starts here any more; restart it, so that it declares its limits again"
            )
        self.heard(now)
        self.woken(wakes)
        jobs = [] if row[7] is None else started(row[7:], self._names, now, ask.worker)
        if len(jobs) < len(seqs):
            # Too much for one answer; what is ours is read when nobody waits for us.
            more = await self.calls.rows(CLAIMED, await self.space(), seqs[len(jobs) :], now, ask.worker)
            guards = dict(zip(seqs, row[-1] or (), strict=False))
            jobs += [guarded(record(each), guards) for each in more]
        begins_to_sleep = self.ears.fed(ask.worker, len(jobs) >= ask.slots)
        if self._listening is not None and (begins_to_sleep or self.ears.wants_empty):
            self._listening.fall_asleep()
        return Claim(
            jobs=jobs,
            now=now,
            ask_again_at=again_at,
            lost=lost,
            waited=self.waited(sending, waited),
            needs_room=needs_room,
            failed=failed_in(wakes),
        )

    async def finish(self, finishes: Sequence[Finish]) -> list[str]:
        if not finishes:
            return []
        try:
            return await self._finish(finishes)
        except REFUSED as error:
            if not is_refusal(error):
                raise
        return await write_each(self._finish, finishes)

    async def _finish(self, finishes: Sequence[Finish]) -> list[str]:
        lost, wakes, now = await self.calls.row(
            FINISH,
            await self.space(),
            self.given_now(),
            *arrays(FINISH_KINDS, finish_columns(finishes, self.least_guard)),
            self.ears.wants_empty,
            again=False,
        )
        self.heard(now)
        self.woken(wakes)
        return list(lost)

    async def decide_again(self, leases: Sequence[Lease]) -> Decided:
        refused, lost, wakes, now = await self.calls.row(
            DECIDE_AGAIN,
            await self.space(),
            self.given_now(),
            [held.id for held in leases],
            [held.fence for held in leases],
            self.ears.wants_empty,
        )
        self.heard(now)
        self.woken(wakes)
        return Decided(refused=refused, lost=lost)

    async def begun(self, said: Sequence[Begun]) -> list[str]:
        columns = [each.id for each in said], [each.fence for each in said], [each.ago for each in said]
        lost, wakes, now = await self.calls.row(BEGUN, await self.space(), self.given_now(), *columns)
        self.heard(now)
        self.woken(wakes)
        return list(lost)

    async def extend(self, worker: str, leases: Sequence[Lease], lease: Micros) -> Extended:
        lost, cancel = await self.calls.row(
            "select * from paceline.extend($1::int, $2::bigint, $3::text, $4::text[], $5::bigint[], $6::bigint)",
            await self.space(),
            self.given_now(),
            worker,
            [held.id for held in leases],
            [held.fence for held in leases],
            lease,
        )
        return Extended(lost, cancel)

    async def note(self, notes: Sequence[Note]) -> list[str]:
        lost = await self.calls.value(
            "select paceline.note($1::int, $2::text[], $3::bigint[], $4::float8[], $5::text[], $6::text[])",
            await self.space(),
            [note.id for note in notes],
            [note.fence for note in notes],
            [note.progress for note in notes],
            [note.message for note in notes],
            [note.log for note in notes],
            again=False,
        )
        return list(lost)

    async def move(self, ids: Sequence[str], move: Move) -> None:
        wakes = await self.calls.value(
            "select paceline.move($1::int, $2::bigint, $3::text[], $4::text, $5::int[], $6::boolean)",
            await self.space(),
            self.given_now(),
            list(ids),
            str(move),
            states_of(move),
            self.ears.wants_empty,
            again=False,
        )
        self.woken(wakes)

    async def finished(self, job_id: str, timeout: Micros | None) -> JobRecord | None:
        ear = self.ears.wait_for(job_id)
        token = secrets.token_hex(8)
        space = await self.space()
        closings = self.connections.closings
        self.start_listening()
        try:
            now = await self.calls.value(
                "select paceline.wait_for($1::int, $2::bigint, $3::text, $4::text, $5::bigint)",
                space,
                self.given_now(),
                job_id,
                token,
                timeout,
            )
            self.heard(now)
            return await self._final_by(job_id, ear, None if timeout is None else now + timeout)
        finally:
            ear.close()
            if self.connections.closings == closings:
                # What stays behind while the server is away is removed when its time is over.
                with contextlib.suppress(StoreUnavailable):
                    text = "select paceline.stop_waiting($1::int, $2::text, $3::text)"
                    await self.calls.rows(text, space, job_id, token)

    async def _final_by(self, job_id: str, ear: Sleeper, deadline: Micros | None) -> JobRecord | None:
        """The job when it has ended, None when it has not by then; a server that is away meanwhile is waited for."""
        closings, asked = self.connections.closings, False
        while True:
            ear.event.clear()
            if self.connections.closings != closings:
                raise StoreUnavailable("the store was closed")
            try:
                found = await self._final(job_id)
                asked = True
            except StoreUnavailable:
                if not asked or self.connections.closings != closings:
                    raise
                found = None
            if found is not None:
                return found
            if deadline is not None and self.clock.now() >= deadline:
                return None
            await self._doze(ear, deadline)

    async def _final(self, job_id: str) -> JobRecord | None:
        """The job if it has ended; also one that was not kept. `JobNotFound` when it is gone otherwise."""
        rows = await self.calls.rows(GET, await self.space(), [job_id], self.given_now())
        if rows:
            found = record(rows[0])
            return found if found.state in FINISHED else None
        text = "select * from paceline.final_record_of($1::int, $2::text)"
        rows = await self.calls.rows(text, await self.space(), job_id)
        if not rows:
            raise JobNotFound(job_id)
        return record(rows[0])

    async def _doze(self, ear: Sleeper, deadline: Micros | None) -> None:
        """Wait until told, and for a while at most: where nobody can tell, looking again must do."""
        if self.clock.virtual and deadline is None:
            await ear.event.wait()
            return
        until = deadline if self.clock.virtual else self.clock.now() + POLL
        assert until is not None
        await self.clock.wait(ear.event, until if deadline is None else min(until, deadline))

    # workers

    async def register(self, worker: WorkerRecord) -> None:
        await self.calls.rows(
            "select paceline.register($1::int, $2::bigint, $3::text, $4::text[], $5::text[], $6::jsonb)",
            await self.space(),
            self.given_now(),
            worker.id,
            list(worker.queues),
            None if worker.tasks is None else sorted(worker.tasks),
            msgspec.json.encode(worker.lags).decode(),
        )

    async def unregister(self, worker: str) -> None:
        await self.calls.rows("select paceline.unregister($1::int, $2::text)", await self.space(), worker)

    def listen(self, queues: Sequence[str], worker: str | None = None) -> Sleeper:
        self.start_listening()
        return self.ears.listen(queues, worker)

    async def prune(self) -> int:
        removed = 0
        while True:
            number: int = await self.calls.value(
                "select paceline.prune($1::int, $2::bigint, $3::int)", await self.space(), self.given_now(), PRUNED
            )
            removed += number
            if number < PRUNED:
                return removed
            await asyncio.sleep(0)


PRUNED = 1000
"""So many jobs one call removes, so that no transaction is long."""
