"""BullMQ on Redis, in Node: this process tells another one what to do, which takes the time itself."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.adapters.interface import Adapter, Handle, Lap, Payload, Rate

FOLDER = Path(__file__).parents[1] / "node"


def install() -> str:
    """Install it with npm into `bench/node`; returns why it cannot be measured, or nothing."""
    if not (shutil.which("node") and shutil.which("npm")):
        return "node and npm are not installed"
    wanted = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    if all(version(package) == number for package, number in wanted.items()):
        return ""
    words = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(words, cwd=FOLDER, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"npm install ended with {done.returncode}"


def version(package: str = "bullmq") -> str:
    about = FOLDER / "node_modules" / package / "package.json"
    return str(json.loads(about.read_text())["version"]) if about.exists() else ""


class System(Adapter):
    """The setting is the concurrency; finished jobs are removed at once."""

    bulk = True

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        self.label = f"BullMQ (Node), concurrency {setting}"
        self.concurrency = int(setting)
        self.worker_cpu: float | None = None

    async def open(self) -> None:
        if why := install():
            raise RuntimeError(f"BullMQ cannot run: {why}")
        pipe = asyncio.subprocess.PIPE
        program = str(FOLDER / "bullmq.mjs")
        self.node = await asyncio.create_subprocess_exec("node", program, self.url, stdin=pipe, stdout=pipe)
        await self._ask({"do": "open"})

    async def add(self, payload: Payload) -> None:
        await self._ask({"do": "add", "payload": payload, "count": 1})

    async def add_many(self, payload: Payload, count: int) -> None:
        await self._ask({"do": "bulk", "payload": payload, "count": count})

    async def add_one_by_one(self, payload: Payload, count: int) -> None:
        await self._ask({"do": "add", "payload": payload, "count": count})

    async def add_together(self, payload: Payload, count: int, tasks: int) -> None:
        await self._ask({"do": "together", "payload": payload, "count": count, "tasks": tasks})

    async def drain(self, jobs: int) -> Lap:
        told = await self._ask({"do": "drain", "count": jobs, "concurrency": self.concurrency})
        assert told["runs"] == jobs, told
        return Lap(told["seconds"], told["cpu"])

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        await self._ask({"do": "work", "concurrency": self.concurrency, "limit": self.limit})
        listening = asyncio.create_task(self._listen(handle))
        await stop.wait()
        self._tell({"do": "stop"})
        self.worker_cpu = await listening

    async def close(self) -> None:
        assert self.node.stdin is not None
        self.node.stdin.close()
        await self.node.wait()

    async def _listen(self, handle: Handle) -> float:
        """Until it has stopped; returns the processor time it used."""
        while "done" not in (told := await self._hear()):
            handle(told["payload"], told["began"])
        return float(told["cpu"])

    async def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        self._tell(command)
        return await self._hear()

    def _tell(self, command: dict[str, Any]) -> None:
        assert self.node.stdin is not None
        self.node.stdin.write(json.dumps(command).encode() + b"\n")

    async def _hear(self) -> dict[str, Any]:
        assert self.node.stdout is not None
        line = await self.node.stdout.readline()
        if not line:
            raise RuntimeError(f"BullMQ's process ended: {await self.node.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told
