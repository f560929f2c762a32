"""Processes of a test: started together, killed by their ids, and read afterwards through the files they left."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .program import monotonic

T = TypeVar("T")

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Place:
    """Where the jobs of one test are."""

    url: str
    namespace: str


@dataclass(eq=False)
class Member:
    """One process."""

    process: subprocess.Popen[str]
    log: Path
    errors: Path
    killed_at: int | None = None
    gone_at: int | None = None
    _read: list[dict[str, Any]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def notes(self, *what: str) -> list[dict[str, Any]]:
        """What it wrote down so far. A line that a kill cut short was never written."""
        if not self.log.exists():
            return []
        lines = self.log.read_bytes().split(b"\n")[:-1]
        self._read += [json.loads(line) for line in lines[len(self._read) :]]
        return [note for note in self._read if not what or note["what"] in what]

    def complaints(self) -> list[str]:
        """What it logged as warnings and errors, or died of; that handlers are late on a busy machine is no fault."""
        return [line for line in self.errors.read_text().splitlines() if "begin late" not in line]


class Crew:
    """Starts processes of this folder's programs, and leaves none behind."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.members: list[Member] = []
        self._folder = folder

    def start(self, program: str, role: str, *options: str, place: Place | None = None) -> Member:
        """Start a program in a process of its own; `ready` waits for it."""
        where = place or self.place
        name = self._folder / f"{role}-{len(self.members)}"
        log, errors = name.with_suffix(".log"), name.with_suffix(".err")
        command = [sys.executable, str(FOLDER / program), role, where.url, where.namespace, "--log", str(log), *options]
        with errors.open("w") as stderr:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stderr, stderr=stderr, text=True)
        member = Member(process, log, errors)
        self.members.append(member)
        return member

    def workers(self, number: int, *options: str) -> list[Member]:
        return [self.start("program.py", "work", *options) for _ in range(number)]

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.gone_at is None]

    async def ready(self, members: Iterable[Member], within: float = 30) -> None:
        """Wait until all of them say that they are ready."""
        for member in members:
            await until(lambda member=member: self._says_ready(member), within)

    def _says_ready(self, member: Member) -> bool:
        assert member.process.poll() is None, f"{member.log.stem} ended: {member.errors.read_text()}"
        return bool(member.notes("ready"))

    def kill(self, *members: Member) -> None:
        """SIGKILL to all of them at once; returns when they are gone."""
        for member in members:
            member.killed_at = monotonic()
            member.process.kill()
        for member in members:
            self._gone(member)

    def terminate(self, *members: Member) -> None:
        """SIGTERM to all of them at once; returns when they have ended by themselves."""
        for member in members:
            member.process.send_signal(signal.SIGTERM)
        for member in members:
            assert member.process.wait(timeout=30) == 0, member.errors.read_text()
            self._gone(member)

    def tell(self, line: str, *members: Member) -> None:
        """One line to the standard input of each, as close together as can be."""
        for member in members:
            assert member.process.stdin is not None
            member.process.stdin.write(line + "\n")
            member.process.stdin.flush()

    def close(self) -> None:
        """Kill what still runs."""
        self.kill(*self.alive)

    def notes(self, *what: str) -> list[dict[str, Any]]:
        """What all of them wrote down, in the order of their common clock."""
        return sorted((note for each in self.members for note in each.notes(*what)), key=lambda note: note["at"])

    def complaints(self) -> list[str]:
        return [f"{member.log.stem}: {line}" for member in self.members for line in member.complaints()]

    def _gone(self, member: Member) -> None:
        member.process.wait(timeout=30)
        if member.process.stdin is not None and not member.process.stdin.closed:
            member.process.stdin.close()
        member.gone_at = monotonic()


async def until(true: Callable[[], T], within: float = 30) -> T:
    """What a look gives as soon as it is true, for what happens in another process."""
    deadline = time.monotonic() + within
    while not (found := true()):
        assert time.monotonic() < deadline, f"{true} did not become true within {within} s"
        await asyncio.sleep(0.01)
    return found


async def eventually(true: Callable[[], Awaitable[T]], within: float = 30, every: float = 0.05) -> T:
    """The same for looks that must be awaited."""
    deadline = time.monotonic() + within
    while not (found := await true()):
        assert time.monotonic() < deadline, f"{true} did not become true within {within} s"
        await asyncio.sleep(every)
    return found
