"""Looking without changing: one job, a page of jobs, queues, where a job stands, who works."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.clock import Micros
from paceline.errors import JobNotFound
from paceline.job import JobRecord
from paceline.stores.interface import About, Filter, QueueRecord, Standing, StartRecord, WorkerRecord
from paceline.stores.postgres.faults import NUMBERS
from paceline.stores.postgres.limiting import LimitCalls
from paceline.stores.postgres.rows import counts_of, queue_record, record, worker_record
from paceline.stores.postgres.texts import ABOUT, GET


class Reading(LimitCalls):
    """The part of the store that only reads."""

    async def about(self) -> About:
        (row,) = await self.calls.rows(ABOUT)
        version, fsync, commit, limit, used = row
        warnings = []
        if fsync == "off":
            warnings.append("fsync is off: a crash of the server can lose or damage everything")
        if commit == "off":
            warnings.append(
                "synchronous_commit is off: a crash of the server can lose the last moments, starts included"
            )
        if int(used) * 10 > int(limit) * 9:
            warnings.append(f"{used} of {limit} connections are in use")
        facts = {
            "schema": self.schema,
            "functions": self.names.functions,
            "connections": f"{used} of {limit}",
            "synchronous_commit": commit,
        }
        return About(f"PostgreSQL {version.split()[0]}", facts, tuple(warnings))

    async def get(self, ids: Sequence[str]) -> list[JobRecord]:
        return [record(row) for row in await self.calls.rows(GET, await self.space(), list(ids), self.given_now())]

    async def find(self, filter: Filter) -> list[JobRecord]:
        rows = await self.calls.rows(
            """select r.* from paceline.records($1::int, paceline.find($1::int, $2::bigint, $3::text, $4::int,
            $5::text, $6::text, $7::int, $8::text, $9::boolean), coalesce($2::bigint, paceline.clock_us())) as r""",
            await self.space(),
            self.given_now(),
            filter.queue,
            None if filter.state is None else NUMBERS.get(filter.state, 0),
            filter.task,
            filter.group,
            filter.limit,
            filter.after,
            filter.newest_first,
        )
        return [record(row) for row in rows]

    async def counts(self, queue: str) -> dict[str, int]:
        numbers = await self.calls.value(
            "select paceline.counts($1::int, $2::bigint, $3::text)", await self.space(), self.given_now(), queue
        )
        return counts_of(numbers)

    async def queues(self) -> list[QueueRecord]:
        rows = await self.calls.rows(
            "select * from paceline.queues($1::int, $2::bigint)", await self.space(), self.given_now()
        )
        return [queue_record(row) for row in rows]

    async def starts(self, queue: str, since: Micros | None) -> list[StartRecord]:
        rows = await self.calls.rows(
            "select * from paceline.starts($1::int, $2::text, $3::bigint)", await self.space(), queue, since
        )
        return [StartRecord(job, at, task, group, self.cost(cost, costs)) for job, at, task, group, cost, costs in rows]

    async def standing(self, job_id: str) -> Standing:
        found = await self.settled("select paceline.standing($1::int, $2::bigint, $3::text)", job_id)
        rows = await self.calls.rows(GET, await self.space(), [job_id], found["now"])
        if not rows:
            raise JobNotFound(job_id)
        return self.standing_of(record(rows[0]), found)

    async def workers(self) -> list[WorkerRecord]:
        rows = await self.calls.rows(
            "select id, queues, tasks, seen_at, lags::text from paceline.worker where space = $1 order by number",
            await self.space(),
        )
        return [worker_record(row) for row in rows]
