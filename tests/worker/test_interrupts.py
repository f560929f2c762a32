"""Handlers that raise what usually ends a program: their attempt fails, and the worker goes on."""

from __future__ import annotations

import asyncio
import importlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline import Queue, Worker, open_store
from paceline.stores.interface import Ask

from .helpers import add, eventually, states


class Own(BaseException):
    """Somebody's own."""


ERRORS = [
    KeyboardInterrupt(),
    SystemExit(2),
    GeneratorExit(),
    Own("mine"),
    asyncio.CancelledError(),
    BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError("no")]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("how", ["async", "thread", "awaitable", "batch"])
async def test_whatever_a_handler_raises_fails_its_attempt_and_the_worker_goes_on(time, error, how):
    queue = Queue("line", store=time.store)

    async def in_loop(job):
        if job.data == 0:
            raise error

    def in_thread(job):
        if job.data == 0:
            raise error

    async def in_batch(jobs):
        return [error if job.data == 0 else job.data for job in jobs]

    handler = {"async": in_loop, "thread": in_thread, "awaitable": lambda job: in_loop(job), "batch": in_batch}[how]
    jobs = await add(queue, 3)
    worker = Worker("line", handler, store=time.store, batch=3 if how == "batch" else None)
    running = asyncio.create_task(worker.run(until_empty=True))
    await time.advance("1s")
    await asyncio.wait_for(running, 10)

    assert await states(jobs) == ["failed", "completed", "completed"]
    assert type(error).__name__ in (jobs[0].error or "")
    assert [(job.attempts_made, job.crashes) for job in jobs] == [(1, 0)] * 3


@pytest.mark.parametrize("name", ["interrupts", "cancels"])
async def test_whatever_a_child_raises_fails_its_attempt_and_the_worker_goes_on(opens, real_store, monkeypatch, name):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    handler = getattr(importlib.import_module("handlers_in_processes"), name)
    queue = Queue("line", store=real_store)
    jobs = await add(queue, 2)
    await Worker("line", handler, store=real_store, isolation="process").run(until_empty=True)

    assert await states(jobs) == ["failed", "completed"]
    assert [(job.attempts_made, job.crashes) for job in jobs] == [(1, 0)] * 2


async def test_an_interrupt_fails_one_job_and_none_beside_it(opens, real_store):
    queue = Queue("line", store=real_store)
    beside = asyncio.Event()

    async def handler(job):
        if job.data == 0:
            await beside.wait()
            raise KeyboardInterrupt
        beside.set()
        await asyncio.sleep(0.05)

    jobs = await add(queue, 3)
    await Worker("line", handler, store=real_store, concurrency=3).run(until_empty=True)

    assert await states(jobs) == ["failed", "completed", "completed"]


PROGRAM = """
import asyncio, sys, time
from paceline import Worker, open_store

async def handler(job):
    print("busy", flush=True)
    while True:
        time.sleep(0.01)

async def main():
    await Worker("line", handler, store=open_store(sys.argv[1]), lease="1s").run()

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""


async def test_ctrl_c_that_meets_a_handlers_own_code_still_ends_the_program(tmp_path):
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    job = await Queue("line", store=store).add("work")
    command = [sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path / 'jobs.db'}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "busy\n"
        process.send_signal(signal.SIGINT)
        _, errors = await asyncio.to_thread(process.communicate, None, 10)
    finally:
        process.kill()
        process.wait()

    assert "KeyboardInterrupt" in errors

    async def comes_back():
        claim = await store.claim(Ask(queues=("line",), slots=1, worker="heir", lease=30_000_000))
        return [record.id for record in claim.jobs]

    await eventually(comes_back, within=10)
    assert (await job.refresh()).attempts_made == 1
    await store.close()


# children of a worker that is gone


KILLED = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
import handlers_in_processes
from paceline import Worker, open_store

async def main():
    handler = getattr(handlers_in_processes, sys.argv[3])
    await Worker("line", handler, store=open_store(sys.argv[1]), isolation="process").run()

if __name__ == "__main__":
    asyncio.run(main())
"""


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("name", ["hang", "hang_in_c"])
async def test_a_child_ends_with_its_worker_whatever_its_handler_does(tmp_path, name):
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    job = await Queue("line", store=store).add("work")
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    here = str(Path(__file__).parent)
    process = subprocess.Popen([sys.executable, str(program), f"sqlite:///{tmp_path / 'jobs.db'}", here, name])
    try:

        async def told():
            return (await job.refresh()).logs

        await eventually(told, within=30)
        child = int(job.logs[0])
        assert not is_gone(child)
    finally:
        process.kill()
        process.wait()

    async def gone():
        return is_gone(child)

    await eventually(gone, within=1)
    await store.close()
