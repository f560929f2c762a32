"""What the stores and Python themselves allow: the same four figures as in `speed`, by the barest code that does them.

No limits, no groups, no retries, no leases that end: rows go in, are claimed by the hundred, and are deleted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.adapters.interface import PAYLOAD
from bench.cases import Case, Size
from bench.places import Place
from bench.report import Table, figure, spread_of
from bench.systems import STORES

TOGETHER = 50
BULK = 1_000
CLAIM = 100
CONNECTIONS = 10
DATA = json.dumps(PAYLOAD)
Rates = dict[str, float]


def cases(size: Size) -> list[Case]:
    jobs = {"memory": 50_000, "sqlite": 20_000, "postgres": 10_000, "redis": 20_000}
    return [Case("ceilings", store, "bare", jobs[store] // (4 if size.quick else 1)) for store in STORES]


async def measure(place: Place, case: Case) -> dict[str, Any]:
    found = {"memory": _memory, "sqlite": _sqlite, "postgres": _postgres, "redis": _redis}
    return await found[case.store](place, case.n)


async def _rate(count: int, work: Callable[[], Awaitable[Any]]) -> float:
    start = time.perf_counter()
    await work()
    return count / (time.perf_counter() - start)


async def _memory(place: Place, jobs: int) -> Rates:
    """asyncio alone: tasks that do nothing, a hundred at a time."""
    left, done = jobs, asyncio.Event()

    async def noop() -> None:
        return None

    def next_one(task: asyncio.Task[None] | None = None) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            asyncio.create_task(noop()).add_done_callback(next_one)
        else:
            done.set()

    async def work() -> None:
        for _ in range(CLAIM):
            next_one()
        await done.wait()

    return {"drain": await _rate(jobs, work)}


async def _sqlite(place: Place, jobs: int) -> Rates:
    """Transactions of the standard library's driver, WAL, synchronous NORMAL."""
    file = sqlite3.connect(place.url.removeprefix("sqlite:///"), isolation_level=None)
    for setting in ("journal_mode=wal", "synchronous=normal"):
        file.execute(f"pragma {setting}")
    file.execute("create table job (id integer primary key, data text, claimed integer)")
    file.execute("create index waiting on job (id) where claimed is null")

    async def add(count: int, size: int) -> None:
        for _ in range(0, count, size):
            file.execute("begin immediate")
            file.executemany("insert into job (data) values (?)", [(DATA,)] * size)
            file.execute("commit")

    async def drain() -> None:
        while True:
            file.execute("begin immediate")
            taken = file.execute(
                "update job set claimed = 1 where id in (select id from job where claimed is null order by id limit ?) "
                "returning id, data",
                (CLAIM,),
            ).fetchall()
            file.execute("commit")
            if not taken:
                return
            file.execute("begin immediate")
            file.executemany("delete from job where id = ?", [(number,) for number, _ in taken])
            file.execute("commit")

    rates = await _adds(jobs, add)
    left = file.execute("select count(*) from job").fetchone()[0]
    rates["drain"] = await _rate(left, drain)
    rates["syncs"] = _disk()
    file.close()
    return rates


def _disk() -> float:
    """Small writes a second that the disk says it has."""
    with tempfile.TemporaryFile() as file:
        start = time.perf_counter()
        for _ in range(200):
            os.pwrite(file.fileno(), b"x" * 8192, 0)
            os.fdatasync(file.fileno())
        return 200 / (time.perf_counter() - start)


async def _postgres(place: Place, jobs: int) -> Rates:
    """psycopg, prepared statements, every commit durable; adds together come over ten connections."""
    import psycopg

    lines = [await psycopg.AsyncConnection.connect(place.url, autocommit=True) for _ in range(CONNECTIONS)]
    line = lines[0]
    await line.execute("create table job (id bigint generated always as identity primary key, data text, claimed bool)")
    await line.execute("create index waiting on job (id) where claimed is null")

    async def add(count: int, size: int) -> None:
        if size == TOGETHER:
            await asyncio.gather(*(insert(each, count // CONNECTIONS, 1) for each in lines))
        else:
            await insert(line, count // size, size)

    async def insert(line: psycopg.AsyncConnection[Any], times: int, size: int) -> None:
        for _ in range(times):
            text = "insert into job (data) select unnest(%s::text[])"
            await line.execute(text, ([DATA] * size,), prepare=True)

    async def drain() -> None:
        while True:
            cursor = await line.execute(
                "update job set claimed = true where id in (select id from job where claimed is null order by id "
                "limit %s for update skip locked) returning id, data",
                (CLAIM,),
                prepare=True,
            )
            taken = await cursor.fetchall()
            if not taken:
                return
            await line.execute("delete from job where id = any(%s)", ([row[0] for row in taken],), prepare=True)

    async def ask() -> None:
        for _ in range(500):
            await line.execute("select 1", prepare=True)

    rates = {"trips": await _rate(500, ask), **await _adds(jobs, add)}
    await line.execute("analyze job")
    left = (await (await line.execute("select count(*) from job")).fetchall())[0][0]
    rates["drain"] = await _rate(left, drain)
    for line in lines:
        await line.close()
    return rates


ADD = """for i = 1, #ARGV do redis.call('HSET', 'jobs', redis.call('INCR', 'id'), ARGV[i]) end
for i = 1, #ARGV do redis.call('RPUSH', 'waiting', i) end return 1"""
TAKE = """local ids = redis.call('LPOP', 'waiting', ARGV[1]) if not ids then return {} end
local bodies = redis.call('HMGET', 'jobs', unpack(ids))
local leases = {} for _, id in ipairs(ids) do leases[#leases + 1] = 1 leases[#leases + 1] = id end
redis.call('ZADD', 'leases', unpack(leases)) return {ids, bodies}"""
END = "redis.call('ZREM', 'leases', unpack(ARGV)) redis.call('HDEL', 'jobs', unpack(ARGV)) return 1"


async def _redis(place: Place, jobs: int) -> Rates:
    """redis-py with hiredis, one connection, scripts; adds together are sent as one pipeline."""
    import redis

    client = redis.Redis.from_url(place.url)
    put, take, end = (client.register_script(text) for text in (ADD, TAKE, END))
    put(args=[DATA])

    async def add(count: int, size: int) -> None:
        for _ in range(0, count, size):
            if size == TOGETHER:
                with client.pipeline(transaction=False) as pipe:
                    for _ in range(size):
                        put(args=[DATA], client=pipe)
                    pipe.execute()
            else:
                put(args=[DATA] * size)

    async def drain() -> None:
        while taken := take(args=[CLAIM]):
            end(args=taken[0])

    async def ask() -> None:
        for _ in range(500):
            client.ping()

    rates = {"trips": await _rate(500, ask), **await _adds(jobs, add)}
    left = client.llen("waiting")
    rates["drain"] = await _rate(left, drain)
    client.close()
    return rates


async def _adds(jobs: int, add: Callable[[int, int], Awaitable[None]]) -> Rates:
    few = jobs // 10
    return {
        "single": await _rate(few, lambda: add(few, 1)),
        "together": await _rate(few, lambda: add(few, TOGETHER)),
        "bulk": await _rate(jobs, lambda: add(jobs, BULK)),
    }


COLUMNS = {"drain": "claim and delete 100", "single": "insert 1", "together": "50 at once", "bulk": "1,000 at once"}


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    head = ["bare: jobs/s", *COLUMNS.values(), "spread", "round trips/s", "disk syncs/s"]
    rows = [
        [
            key.split()[0],
            *(figure(runs, column) for column in COLUMNS),
            spread_of(runs, "drain"),
            figure(runs, "trips"),
            figure(runs, "syncs"),
        ]
        for key, runs in results.items()
    ]
    return [Table(head, rows)]
