"""Several worker processes, or one that starts anew when files change: pass signals on, replace the dead."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from paceline.cli.health import serve_health
from paceline.cli.logs import configure_logs
from paceline.cli.reload import Files
from paceline.cli.reports import VARIABLE
from paceline.cli.running import CRASHED, NO_STORE, WRONG_USE

if TYPE_CHECKING:
    from paceline.cli.worker import Plan

log = logging.getLogger("paceline.cli")

REST = 1.0
"""Seconds before a process that died is replaced."""
SILENT = 5.0
"""A process that reported nothing for so long does not count as alive."""


class Child:
    """One worker process and what it last said."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.heard_at = time.monotonic()
        self.said: dict[str, object] = {}
        reads, out = os.pipe()
        alive, self._alive = os.pipe()
        environment = {**os.environ, VARIABLE: f"{out},{alive}"}
        # A session of its own: a Ctrl-C in the terminal reaches us, and we pass it on once.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *sys.argv[1:]],
            env=environment,
            pass_fds=(out, alive),
            start_new_session=True,
        )
        os.close(out)
        os.close(alive)
        self._reads = reads
        self._rest = b""
        asyncio.get_running_loop().add_reader(reads, self._hear)

    def _hear(self) -> None:
        heard = os.read(self._reads, 65536)
        if not heard:
            asyncio.get_running_loop().remove_reader(self._reads)
            return
        *lines, self._rest = (self._rest + heard).split(b"\n")
        for line in lines:
            self.said = msgspec.json.decode(line)
            self.heard_at = time.monotonic()

    @property
    def lives(self) -> bool:
        """It runs, and was heard not long ago."""
        return self.process.poll() is None and time.monotonic() - self.heard_at < SILENT

    def signal(self, number: int) -> None:
        """Pass a signal on."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def let_go(self) -> None:
        """Close our ends of its pipes."""
        asyncio.get_running_loop().remove_reader(self._reads)
        os.close(self._reads)
        os.close(self._alive)


def supervise(plan: Plan) -> int:
    """Run the plan's processes until told to stop; gives the exit code."""
    if not hasattr(signal, "SIGTSTP"):
        raise click.UsageError("several processes, --reload and dev need Unix signals: run one process on this system")
    return asyncio.run(Supervisor(plan).run())


class Supervisor:
    """Keeps as many processes running as the plan says."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._children: dict[int, Child] = {}
        self._codes: list[int] = []
        self._asked = 0
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Until every process ended."""
        configure_logs(self._plan.log_level, self._plan.log_format == "json")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGUSR1):
            loop.add_signal_handler(number, self._pass_on, number)
        health = None
        if self._plan.health is not None:
            health = await serve_health(self._plan.health, self._live, self._ready)
        if self._plan.log_format == "text":
            many = f"{self._plan.processes} processes of " if self._plan.processes > 1 else ""
            click.echo(f"paceline: {many}{self._plan.app}; Ctrl-C stops", err=True)
        try:
            await (self._run_reloading() if self._plan.reload else self._run())
        finally:
            if health is not None:
                health.close()
        return max(self._codes, default=0)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as together:
            for number in range(self._plan.processes):
                together.create_task(self._keep(number))

    async def _keep(self, number: int) -> None:
        """One place among the processes: whoever dies is replaced, unless it ended as it should."""
        while True:
            code = await self._one(number)
            if code == 0 or self._asked:
                self._codes.append(max(code, 0))
                return
            if code in (WRONG_USE, NO_STORE):
                # Starting anew would not help, and all say the same.
                self._codes.append(code)
                self._stop(signal.SIGTERM)
                return
            log.warning("process %d ended with %s and is started anew", number, _in_words(code))
            self._codes.append(0)
            await asyncio.sleep(REST)
            if self._asked:
                return

    async def _one(self, number: int) -> int:
        child = self._children[number] = Child(number)
        try:
            return await asyncio.to_thread(child.process.wait)
        finally:
            del self._children[number]
            child.let_go()

    async def _run_reloading(self) -> None:
        files = Files()
        while not self._asked:
            running = asyncio.ensure_future(self._run_once())
            changed = asyncio.ensure_future(files.change())
            stopped = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait({changed, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if changed.done() and not self._asked:
                log.info("%s changed: the worker starts anew", changed.result())
                self._pass_on(signal.SIGTERM)
            changed.cancel()
            self._codes += await running
        self._codes = [code for code in self._codes if self._asked and code > 0][-1:]

    async def _run_once(self) -> list[int]:
        """All processes, once; one that cannot even begin waits for the next change."""
        codes = await asyncio.gather(*(self._one(number) for number in range(self._plan.processes)))
        if any(codes) and not self._asked:
            log.info("the worker ended with %s; it starts anew when a file changes", _in_words(max(codes)))
        return codes if self._asked else []

    def _stop(self, number: int) -> None:
        self._asked += 1
        self._changed.set()
        if self._asked > 2:
            self._pass_on(signal.SIGKILL)
            os._exit(CRASHED)
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        for child in self._children.values():
            child.signal(number)

    async def _live(self) -> tuple[bool, dict[str, object]]:
        living = sum(child.lives for child in self._children.values())
        return living == self._plan.processes, {"alive": living, "of": self._plan.processes}

    async def _ready(self) -> tuple[bool, dict[str, object]]:
        ready = sum(child.lives and child.said.get("ready") is True for child in self._children.values())
        return ready == self._plan.processes and not self._asked, {"ready": ready, "of": self._plan.processes}


def _in_words(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
