"""The program that worker and producer processes run: `python program.py work URL NAMESPACE --log FILE …`.

Every handler notes its beginning and its end in the file of its process, with the monotonic clock that all processes of
a machine share. A program ends when whoever started it is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from paceline import App, Concurrency, Rate, current_job
from paceline.limits import Kind
from paceline.stores.interface import Ask, Claim, Finish, Outcome, Store

GROUPS = ("north", "south", "west")
EVERYTHING = "everything"
LIMITS: Mapping[str, tuple[Kind, str | None]] = {
    "ten_a_second": (Rate(10, per="1s"), None),
    "five_a_quarter": (Rate(5, per="250ms"), None),
    "two_at_once": (Concurrency(2), None),
    "group_rate": (Rate(4, per="500ms"), "group"),
    "group_slot": (Concurrency(1), "group"),
}
"""Each limit has a task of its own with the same name; the task `everything` meets all of them."""
FLEET: Mapping[str, tuple[Kind, str | None]] = {
    "hundred_a_second": (Rate(100, per="1s"), None),
    "ten_a_second": (Rate(10, per="1s"), None),
    "seven_at_once": (Concurrency(7), None),
    "group_rate": (Rate(4, per="500ms"), "group"),
    "group_slot": (Concurrency(1), "group"),
}
"""What a fleet of workers shares, with `--fleet`."""
UNLIMITED = ("plain", "rare", "quiet", "held")
"""Further tasks that meet no limit unless a test declares one."""

BACKLOG = {
    "ten_a_second": 3,
    "five_a_quarter": 5,
    "two_at_once": 5,
    "group_rate": 4,
    "group_slot": 4,
    EVERYTHING: 2,
}
"""So many jobs of each task and group wait whenever the producer has looked."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(when: datetime) -> int:
    """An aware datetime as microseconds since 1970, to the last one."""
    return (when - EPOCH) // timedelta(microseconds=1)


def monotonic() -> int:
    """The clock of all processes of a machine, in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Notes:
    """Lines in a file, one write each: what is written stays, whatever happens to the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: str, **more: Any) -> None:
        line = json.dumps({"what": what, "at": monotonic(), "pid": os.getpid(), **more})
        os.write(self._file, line.encode() + b"\n")

    def sync(self) -> None:
        os.fsync(self._file)


def make_app(
    url: str | Store,
    namespace: str,
    note: Callable[..., None] = lambda *_, **__: None,
    takes: float = 0.005,
    limits: Mapping[str, tuple[Kind, str | None]] = LIMITS,
) -> App:
    """The app of all processes: its limits, and its tasks, which say when they begin and end."""
    app = App(url, namespace=namespace)
    for name, (kind, scope) in limits.items():
        app.limit(name, kind, tasks=[name, EVERYTHING], by=scope)

    async def handler() -> int:
        job = current_job()
        assert job.started_at is not None
        started_at = micros(job.started_at)
        about = {"job": job.id, "task": job.task, "group": job.group, "started_at": started_at}
        note("begin", **about)
        await asyncio.sleep(takes)
        note("end", **about)
        return started_at

    for name in (*limits, EVERYTHING, *UNLIMITED):
        app.task(name=name)(handler)
    return app


class Producer:
    """Keeps a backlog of every task in every group, and knows what it tried to add and what was accepted."""

    def __init__(
        self, app: App, backlog: Mapping[str, int] = BACKLOG, name: str = "job", note: Callable[..., None] | None = None
    ) -> None:
        self._app = app
        self._backlog = backlog
        self._name = name
        self._note = note
        self._stopping = asyncio.Event()
        self.accepted: list[str] = []

    async def run(self, every: float = 0.1) -> None:
        """Look and add until told to stop."""
        queue = self._app.queue()
        while not self._stopping.is_set():
            waiting = Counter((job.task, job.group) for job in await queue.list("waiting", limit=1000))
            missing = {
                (task, group): most - waiting[task, group] for task, most in self._backlog.items() for group in GROUPS
            }
            await asyncio.gather(*(self._add(*where) for where, number in missing.items() for _ in range(number)))
            try:
                await asyncio.wait_for(self._stopping.wait(), every)
            except TimeoutError:
                continue

    def stop(self) -> None:
        self._stopping.set()

    async def _add(self, task: str, group: str) -> None:
        job_id = f"{self._name}-{task}-{os.urandom(6).hex()}"
        if self._note is not None:
            self._note("try", job=job_id)
        await self._app.tasks[task].using(group=group, job_id=job_id).enqueue()
        self.accepted.append(job_id)
        if self._note is not None:
            self._note("accepted", job=job_id)


def note_calls(store: Store, note: Callable[..., None]) -> None:
    """Write a line for every call of the store."""

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def call_and_note(*args: Any, **kwargs: Any) -> Any:
            note("call", name=name)
            return await call(*args, **kwargs)

        return call_and_note

    for name, declared in vars(Store).items():
        if inspect.iscoroutinefunction(declared):
            setattr(store, name, noted(name, getattr(store, name)))


def note_completions(store: Store, note: Callable[..., None]) -> None:
    """Write a line for every completion that the store accepted."""
    claim, finish = store.claim, store.finish

    def accepted(finishes: Sequence[Finish], lost: Sequence[str]) -> None:
        for end in finishes:
            if end.outcome is Outcome.COMPLETED and end.id not in lost:
                note("completed", job=end.id)

    async def noted_claim(ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
        answer = await claim(ask, finishes)
        accepted(finishes, answer.lost)
        return answer

    async def noted_finish(finishes: Sequence[Finish]) -> list[str]:
        lost = await finish(finishes)
        accepted(finishes, lost)
        return lost

    store.claim, store.finish = noted_claim, noted_finish


async def work(app: App, notes: Notes, arguments: argparse.Namespace) -> None:
    """A worker until SIGTERM."""
    note_completions(app.store, notes.write)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    worker = app.worker(concurrency=arguments.slots, lease=arguments.lease)
    async with app, worker:
        notes.write("ready")
        await stopping.wait()
    notes.write("stopped", insurance=worker.insurance_wakeups)


async def produce(app: App, notes: Notes, arguments: argparse.Namespace) -> None:
    """A producer until SIGTERM."""
    producer = Producer(app, name=f"{os.getpid()}", note=notes.write)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, producer.stop)
    async with app:
        notes.write("ready")
        await producer.run()
    notes.write("stopped")


async def tick(app: App, notes: Notes, arguments: argparse.Namespace) -> None:
    """An ideal limiter with nothing to do: wake up, write one line to the disk, sleep for a window from then on."""
    notes.write("ready")
    while True:
        await asyncio.sleep(arguments.takes)
        notes.write("tick")
        notes.sync()


def shift_clocks(seconds: float) -> None:
    """Whatever tells the time of day in this process is wrong by so much."""
    if not seconds:
        return
    now, now_ns, of = time.time, time.time_ns, time.clock_gettime
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)
    time.clock_gettime = lambda which: of(which) + (seconds if which == time.CLOCK_REALTIME else 0)


def end_with_parent() -> None:
    """End when the other end of standard input is closed: whoever started this program is gone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["work", "produce", "tick"])
    parser.add_argument("url")
    parser.add_argument("namespace")
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--lease", default="30s")
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--takes", type=float, default=0.005, help="seconds of a handler, or between two ticks")
    parser.add_argument("--calls", action="store_true", help="note every call of the store")
    parser.add_argument("--fleet", action="store_true", help="the limits of a fleet instead of the usual ones")
    parser.add_argument("--ahead", type=float, default=0, help="seconds by which the clock of this process is wrong")
    arguments = parser.parse_args()
    shift_clocks(arguments.ahead)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s", stream=sys.stderr)
    end_with_parent()
    notes = Notes(arguments.log)
    limits = FLEET if arguments.fleet else LIMITS
    app = make_app(arguments.url, arguments.namespace, notes.write, arguments.takes, limits)
    if arguments.calls:
        note_calls(app.store, notes.write)
    role = {"work": work, "produce": produce, "tick": tick}[arguments.role]
    asyncio.run(role(app, notes, arguments))


if __name__ == "__main__":
    main()
