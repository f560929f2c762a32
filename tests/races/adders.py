"""The program of processes that all do the same at once: `python adders.py ROLE URL NAMESPACE --log FILE`.

Each says that it is ready, waits for a line on its standard input, does its part, and notes what came of it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

# Beside this file: it is run as a script.
sys.path.insert(0, str(Path(__file__).parent))

from program import Notes, make_app

from paceline import App, Group, GroupFull, Unique

MAX_SIZE = 50
SAME = 40
"""So many ids and keys that every process uses."""
EACH = 60
"""So many adds that every process tries, or must bring through."""


async def fill(app: App, notes: Notes) -> None:
    """Add to one group with a size, long after it is full: one by one and three at once, for now and for later."""
    added = refused = 0
    for number in range(EACH):
        new = await add_to_group(app, 3 if number % 3 == 0 else 1, delay="1h" if number % 4 == 0 else None)
        added += new
        refused += not new
    notes.write("done", added=added, refused=refused)


async def bring_through(app: App, notes: Notes) -> None:
    """Add to one group with a size, again and again while it is full, until a number of jobs has found its place."""
    added = refused = 0
    async with asyncio.timeout(30):
        while added < EACH:
            new = await add_to_group(app, 3 if refused % 3 == 0 else 1, delay="20ms" if refused % 4 == 0 else None)
            added += new
            refused += not new
    notes.write("done", added=added, refused=refused)


async def add_to_group(app: App, number: int, delay: str | None) -> int:
    task = app.tasks["plain"].using(group=Group("tenant", max_size=MAX_SIZE), delay=delay)
    try:
        return len(await task.enqueue_many([()] * number))
    except GroupFull as full:
        assert (full.group, full.max_size) == ("tenant", MAX_SIZE)
        return 0


async def same_ids(app: App, notes: Notes) -> None:
    """Add the same ids, each with data of its own; what comes back says whose job it is."""
    queue = app.queue()
    jobs = [await queue.add("plain", os.getpid(), job_id=f"same-{number}") for number in range(SAME)]
    notes.write("done", jobs=[(job.id, job.data) for job in jobs])


async def same_ids_at_once(app: App, notes: Notes) -> None:
    """The same from many tasks of each process, and in bulk."""
    queue = app.queue()
    jobs = await asyncio.gather(
        *(queue.add("plain", os.getpid(), job_id=f"same-{number}") for number in range(0, SAME, 2))
    )
    jobs += await queue.add_many([("plain", os.getpid(), {"job_id": f"same-{number}"}) for number in range(SAME)])
    notes.write("done", jobs=[(job.id, job.data) for job in jobs])


async def same_keys(app: App, notes: Notes) -> None:
    """Add jobs with the same unique keys."""
    queue = app.queue()
    jobs = [await queue.add("plain", os.getpid(), unique=Unique(key=f"key-{number}")) for number in range(SAME)]
    notes.write("done", jobs=[(f"key-{number}", job.id) for number, job in enumerate(jobs)])


async def declare(app: App, notes: Notes) -> None:
    """The first call of an app writes its limits."""
    async with app:
        notes.write("done", counts=await app.queue().counts())


ROLES: Mapping[str, Callable[[App, Notes], Awaitable[None]]] = {
    "fill": fill,
    "bring-through": bring_through,
    "same-ids": same_ids,
    "same-ids-at-once": same_ids_at_once,
    "same-keys": same_keys,
    "declare": declare,
}


async def at_once(role: Callable[[App, Notes], Awaitable[None]], app: App, notes: Notes) -> None:
    """Open the store, then wait for the others; whoever declares does both after the line."""
    if role is not declare:
        await app.queue().counts()
    notes.write("ready")
    if sys.stdin.readline():
        await role(app, notes)
    await app.close()


def open_new(notes: Notes) -> None:
    """Each line names a place where nobody has been: add a job there, as quickly as possible after the line."""
    notes.write("ready")
    for line in sys.stdin:
        url, namespace = line.split()
        app = make_app(url, namespace)
        asyncio.run(open_one(app, notes))


async def open_one(app: App, notes: Notes) -> None:
    async with app:
        job = await app.tasks["plain"].enqueue()
        notes.write("done", job=job.id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=[*ROLES, "open-new"])
    parser.add_argument("url")
    parser.add_argument("namespace")
    parser.add_argument("--log", required=True, type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s", stream=sys.stderr)
    notes = Notes(arguments.log)
    if arguments.role == "open-new":
        open_new(notes)
    else:
        app = make_app(arguments.url, arguments.namespace)
        asyncio.run(at_once(ROLES[arguments.role], app, notes))


if __name__ == "__main__":
    main()
