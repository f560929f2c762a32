"""What an earlier release was asked to do before its database was kept; written for the interface of f1e763e.

`python -m tests.postgres.earlier.scenario NAME`, run with the sources of that release, writes `NAME.sql.xz`: tables,
functions and rows. A test asks the same of this release and compares.
"""

from __future__ import annotations

import asyncio
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.job import Move, NewJob
from paceline.limits import Concurrency, Delay, Limit, Rate
from paceline.stores.interface import Ask, Finish, Hold, Outcome, Override, Target

HERE = Path(__file__).parent
SECOND = 1_000_000
HOUR = 3600 * SECOND
START = 1_000_000_000 * SECOND


class Clock:
    """Time that moves only when it is told to."""

    virtual = True

    def __init__(self, at: int = START) -> None:
        self.at = at

    def now(self) -> int:
        return self.at

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        raise AssertionError("nobody sleeps here")

    def handler_begins(self) -> None:
        return None


LIMITS = [
    Limit("service", Rate(12, per="10s") & Concurrency(5)),
    Limit("tenant", Rate(4, per="10s"), by="group", overrides={"vip": Rate(6, per="10s")}),
    Limit("mail", Delay("500ms"), tasks=["mail"]),
    Limit("calls", Concurrency(2), tasks=["call"]),
]
GROUPS = ("acme", "vip", "late", "idle", None)


def ask(queue: str, slots: int, claim_id: str) -> Ask:
    return Ask(queues=(queue,), slots=slots, worker="w", lease=HOUR, claim_id=claim_id)


async def fill(store: Any, clock: Clock) -> None:
    """Jobs in every state, limits in use, an override, a hold, pauses, permits."""
    await store.set_limits(LIMITS)
    await store.insert([a_job(number) for number in range(30)])
    await store.insert([NewJob(f"other-{n}", "other", "sleep", lifo=True, priority=n % 2) for n in range(4)])
    ends = [Outcome.COMPLETED, Outcome.FAILED, Outcome.RETRY]
    for number in range(3):
        clock.at += SECOND
        claim = await store.claim(ask("line", 4, f"claim {number}"))
        # The last run of each claim goes on.
        runs = zip(claim.jobs[:-1], ends, strict=False)
        await store.finish([Finish(id=j.id, fence=j.fence, outcome=end, after=HOUR) for j, end in runs])
    await store.move(["29"], Move.CANCEL)
    await store.pause("line", None, "idle", True)
    await store.pause("line", "rare", None, True)
    await store.pause("other", None, None, True)
    await store.override(Override(limit="tenant", kind=Rate(2, per="10s"), group="acme", reason="floods us"), 2 * HOUR)
    await store.hold([Hold(limit="tenant", group="late", for_=20 * SECOND, reason="429")])
    await store.acquire([Target("calls")], "permit", HOUR)
    for number in range(30, 40):
        clock.at += 1000
        await store.insert([a_job(number)])


def a_job(number: int) -> NewJob:
    return NewJob(
        f"{number}",
        "line",
        ("work", "work", "mail", "rare")[number % 4],
        data=f'{{"number": {number}}}'.encode(),
        group=GROUPS[number % 5],
        priority=number % 3,
        attempts=3,
        delay=HOUR if number % 13 == 5 else 0,
        unique=f"key {number}" if number % 7 == 0 else None,
        cost=2 if number % 11 == 3 else 1,
    )


def dump(connection: Any, script: str) -> Iterator[str]:
    """Tables and functions, then rows and sequences."""
    yield script
    tables = connection.execute(
        "select relname from pg_class where relnamespace = 'paceline'::regnamespace and relkind = 'r' "
        "and relname not in ('version', 'installed') order by 1"
    )
    for (table,) in tables.fetchall():
        columns = "select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute "
        (names,) = connection.execute(
            f"{columns} where attrelid = 'paceline.{table}'::regclass and attnum > 0 and not attisdropped"
        ).fetchone()
        text = (
            f"select format('(%%s)', concat_ws(', ', {', '.join(f'quote_nullable({n})' for n in names.split(', '))}))"
        )
        rows = [row for (row,) in connection.execute(f"{text.replace('%%', '%')} from paceline.{table}").fetchall()]
        if rows:
            values = ",\n".join(rows)
            yield f"insert into paceline.{table} ({names}) overriding system value values\n{values};\n"
    sequences = (
        "select relname from pg_class where relnamespace = 'paceline'::regnamespace and relkind = 'S' order by 1"
    )
    for (name,) in connection.execute(sequences).fetchall():
        last, called = connection.execute(f"select last_value, is_called from paceline.{name}").fetchone()
        yield f"select setval('paceline.{name}', {last}, {str(called).lower()});\n"


async def keep(url: str) -> str:
    """Fill the database there with the release that is imported; its SQL."""
    import psycopg

    from paceline.stores.postgres import schema
    from paceline.stores.postgres.store import PostgresStore

    clock = Clock()
    store = PostgresStore(url, clock=clock)  # type: ignore[arg-type]
    await store.open()
    await fill(store, clock)
    await store.close()
    with psycopg.connect(url, autocommit=True) as connection:
        return f"-- now: {clock.at}\n" + "".join(dump(connection, schema.script("paceline")))


def kept(name: str) -> tuple[str, int]:
    """The SQL of a database that was kept, and the instant at which it was left."""
    text = lzma.decompress((HERE / f"{name}.sql.xz").read_bytes()).decode()
    return text, int(text.split("\n", 1)[0].removeprefix("-- now: "))


if __name__ == "__main__":
    from tests.servers.postgres import Server

    with Server() as running:
        written = asyncio.run(keep(running.url()))
    (HERE / f"{sys.argv[1]}.sql.xz").write_bytes(lzma.compress(written.encode(), preset=9))
