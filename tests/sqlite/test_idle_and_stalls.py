"""A laptop stays asleep while nothing happens, and an event loop goes on while another process writes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

from paceline import Queue

IDLE = """
import asyncio, json, resource, sys
from paceline import Worker, open_store
from paceline.stores.sqlite import polling, writer

statements = []
for module in (polling, writer):
    def connect(*args, real=module.connect):
        db = real(*args)
        db.set_trace_callback(statements.append)
        return db
    module.connect = connect

async def main():
    store = open_store("sqlite:///" + sys.argv[1])
    async def work(job):
        pass
    async with Worker("line", work, store=store):
        await asyncio.sleep(2.5)
        del statements[:]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        await asyncio.sleep(6)
        woken = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before
        print(json.dumps([woken, statements]), flush=True)

asyncio.run(main())
"""


def test_an_idle_worker_wakes_at_most_twice_a_second_and_reads_nothing(path):
    ran = subprocess.run(
        [sys.executable, "-c", IDLE, str(path)], capture_output=True, text=True, timeout=60, check=True
    )

    woken, statements = json.loads(ran.stdout)
    assert statements == []
    assert woken <= 2 * 6, f"{woken} times in 6 s"


async def test_an_event_loop_goes_on_while_another_process_holds_the_file(store, program):
    """Adds wait in a thread. A loop that waited too would pause in every round; a busy machine makes some long."""
    queue = Queue("line", store=store)
    await queue.add("work")
    other = program()
    pauses = []
    for _ in range(20):
        other.execute("BEGIN IMMEDIATE")
        add = asyncio.create_task(queue.add("work"))
        until = time.monotonic() + 0.04
        longest = 0.0
        while time.monotonic() < until:
            before = time.monotonic()
            await asyncio.sleep(0)
            longest = max(longest, time.monotonic() - before)
        pauses.append(longest)
        assert not add.done()
        other.execute("ROLLBACK")
        await asyncio.wait_for(add, 10)

    assert min(pauses) <= 0.010
    assert (await queue.counts())["waiting"] == 21
