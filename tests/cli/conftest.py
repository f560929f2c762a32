"""A folder as a user has it: a module with an app, and the `paceline` command run there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..servers.fresh import empty_postgres
from ..servers.redis import empty_redis

PATIENCE = 30.0
"""Seconds until something that must happen counts as not happening."""

MODULE = """
import asyncio, os
from paceline import App, Concurrency, Rate

app = App(os.environ["TEST_STORE"])
app.limit("mail", Rate(2, per="1h") & Concurrency(5), tasks=["send_email"])


@app.task(attempts=2)
async def send_email(to: str, subject: str = "Hi") -> str:
    if to == "bad":
        raise ValueError("no such address")
    return f"sent {subject} to {to}"


@app.task()
async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)
"""


class Shop:
    """The user's folder, the environment of his shell, and the commands he types."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE")}
        self.env |= {"TEST_STORE": url, "PYTHONWARNINGS": "error", "PYTHONDEVMODE": ""}
        (folder / "jobs.py").write_text(MODULE)
        self.started: list[subprocess.Popen[str]] = []

    def run(self, *words: str, code: int = 0, **env: str) -> str:
        """Run a command to its end; gives what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "paceline", *words],
            cwd=self.folder,
            env={**self.env, **env},
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def python(self, *words: str) -> str:
        """Run a program of the user; gives what it printed."""
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=self.env, text=True, stdout=subprocess.PIPE, check=True
        ).stdout

    def read(self, *words: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.run(*words, "--app", "jobs:app", "--json"))

    def add(self, *words: str) -> str:
        """Add a job; gives its id."""
        return self.run("enqueue", "-a", "jobs:app", *words).strip()

    def start(self, *words: str, **env: str) -> Running:
        """Run a command in the background."""
        running = Running(self.folder, {**self.env, **env}, words)
        self.started.append(running.process)
        return running

    def state(self, job: str) -> str:
        found: str = self.read("why", job)["state"]
        return found


class Running:
    """A command that runs in the background."""

    def __init__(self, folder: Path, env: dict[str, str], words: tuple[str, ...]) -> None:
        self._log = folder / f"log-{time.monotonic_ns()}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "paceline", *words],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def until(self, text: str, times: int = 1) -> None:
        """Wait until it says something."""
        eventually(lambda: self.said.count(text) >= times, lambda: f"{text!r} not in:\n{self.said}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        return self.process.wait(PATIENCE)


def eventually(holds: Callable[[], bool], why: Callable[[], str] = lambda: "it never happened") -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop on a SQLite file."""
    yield from _open(Shop(tmp_path, f"sqlite:///{tmp_path / 'jobs.db'}?durability=normal"))


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def any_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A shop on each store that processes share."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}?durability=normal"
    else:
        url = empty_postgres() if request.param == "postgres" else empty_redis()
    yield from _open(Shop(tmp_path, url))


def _open(shop: Shop) -> Iterator[Shop]:
    yield shop
    for process in shop.started:
        if process.poll() is None:
            process.kill()
        process.wait()
