"""What happened before `format_3.db.gz` was closed: the same calls give the same state in any store.

`python -m tests.sqlite.earlier.history FILE` writes such a file with the release that is installed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.clocks import HandClock

from paceline.job import Move, NewJob
from paceline.limits import Concurrency, Delay, Limit, Rate
from paceline.stores.interface import Ask, Finish, Hold, Note, Outcome, Override, Target, WorkerRecord

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


async def earlier(store: Any, clock: Any) -> None:
    """Jobs in every state, groups, limits, overrides, pauses, holds, a reservation, permits and leases."""
    await store.set_limits(
        [
            Limit("api", Rate(6, per="10s") & Concurrency(4)),
            Limit("each", Rate(2, per="5s"), by="group"),
            Limit("slots", Concurrency(1), by="group", tasks={"slow"}),
            Limit("gap", Delay("1s"), tasks={"rare"}),
            Limit("held", Rate(100, per="1m"), by="group", tasks={"held"}),
        ]
    )
    await store.register(WorkerRecord(id="w1", queues=("line", "other"), tasks=None))
    await _add(store)
    first = await _claim(store, 3)
    clock.at += SECOND
    await store.note([Note(id=first[0].id, fence=first[0].fence, progress=40, message="half", log="so far")])
    ends = [
        Finish(id=first[0].id, fence=first[0].fence, outcome=Outcome.COMPLETED, result=b"\x01"),
        Finish(id=first[1].id, fence=first[1].fence, outcome=Outcome.RETRY, after=3 * SECOND, error="once more"),
    ]
    second = await _claim(store, 4, ends, lease=20 * SECOND)
    await store.finish([Finish(id=second[0].id, fence=second[0].fence, outcome=Outcome.FAILED, error="no")])
    clock.at += SECOND
    await store.override(Override(limit="api", kind=Rate(8, per="10s"), reason="more"), None)
    await store.override(Override(limit="each", kind=Rate(3, per="5s"), group="a"), 30 * SECOND)
    await store.hold([Hold(limit="each", group="c", for_=40 * SECOND, reason="asked to")])
    await store.hold([Hold(limit="held", for_=30 * SECOND, reason="all of them")])
    await store.pause("line", "paused", None, True)
    await store.pause("line", None, "d", True)
    await store.pause("closed", None, None, True)
    await store.move(["cancel-me"], Move.CANCEL)
    await store.acquire([Target("slots", "x", 1)], "permit", 25 * SECOND)
    await store.acquire([Target("api", None, 6)], "waits", 25 * SECOND, waits=True)
    await _claim(store, 2, queues=("line",), tasks=frozenset({"work", "slow"}), worker="w2")
    clock.at += SECOND


async def _add(store: Any) -> None:
    jobs = [NewJob(f"w{n}", "line", "work", b"%d" % n, "abcd"[n % 4]) for n in range(16)]
    jobs += [NewJob(f"s{n}", "line", "slow", b"", "ab"[n % 2], priority=n % 3) for n in range(6)]
    jobs += [NewJob(f"o{n}", "other", "work", b"", "a" if n % 2 else None) for n in range(5)]
    jobs += [NewJob(f"r{n}", "line", "rare", b"", None, lifo=n == 2) for n in range(3)]
    jobs += [NewJob(f"d{n}", "line", "work", b"", "b", delay=(n + 1) * 4 * SECOND) for n in range(4)]
    jobs += [NewJob("big", "other", "work", b"", "z", cost={"api": 5}), NewJob("p1", "line", "paused", b"", "a")]
    jobs += [NewJob("u1", "line", "work", b"", "c", unique="one", unique_ttl=HOUR, attempts=3, keep=HOUR)]
    jobs += [
        NewJob("cancel-me", "closed", "work", b""),
        NewJob("h1", "line", "held", b"", "h"),
        NewJob("c1", "closed", "work"),
    ]
    await store.insert(jobs)


async def _claim(
    store: Any, slots: int, ends: Any = (), *, queues: Any = ("line", "other"), lease: int = 10 * SECOND, **more: Any
) -> list[Any]:
    worker = more.pop("worker", "w1")
    return (await store.claim(Ask(queues=queues, slots=slots, worker=worker, lease=lease, **more), ends)).jobs


async def _main(path: str) -> None:
    from paceline.stores.sqlite.store import SqliteStore

    clock = HandClock()
    store = SqliteStore(f"sqlite:///{path}", clock=clock)
    await earlier(store, clock)
    await store.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
