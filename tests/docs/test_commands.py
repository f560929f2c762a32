"""Every `paceline …` on a page is a command that exists, with options it has; and the quick start goes as it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from paceline.cli.group import group as main

from ..servers.fresh import database, server, wipe_text
from ..servers.redis import empty_redis

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
IN_TEXT = re.compile(r"`paceline( [^`]+)`")
IN_BLOCKS = re.compile(r"^\$ paceline( .+)$|^ExecStart=\S+/paceline( .+)$", re.MULTILINE)


def commands(page: Path) -> list[str]:
    text = page.read_text()
    blocks = "\n".join(re.findall(r"^```(?:console|ini)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    found = [*IN_TEXT.findall(text), *(one or other for one, other in IN_BLOCKS.findall(blocks))]
    return sorted({" ".join(each.split()) for each in found})


COMMANDS = [(page.relative_to(ROOT), command) for page in PAGES for command in commands(page)]


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{page}: {command}" for page, command in COMMANDS])
def test_a_command_on_a_page_exists_as_it_is_written(
    page: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mails.jsonl").touch()
    args = shlex.split(command)
    name, found, args = main.resolve_command(main.make_context("paceline", list(args)), args)
    if isinstance(found, click.Group) and args:
        name, found, args = found.resolve_command(found.make_context(name, list(args)), args)

    assert found is not None
    if args:  # without any, the page speaks of the command and not of one call
        with found.make_context(name, list(args)):
            pass


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) >= 40


def url_of(store: str) -> str:
    """An empty store that several processes can share."""
    if store == "postgres":
        database().execute(wipe_text())
        return server().url()
    return empty_redis() if store == "redis" else "sqlite:///jobs.db"


@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_the_quick_start_goes_as_it_says(store: str, tmp_path: Path) -> None:
    block = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/quick-start.md").read_text(), re.DOTALL | re.MULTILINE)[
        0
    ]
    (tmp_path / "jobs.py").write_text(block.replace("sqlite:///jobs.db", url_of(store)))
    environment = {**os.environ, "PACELINE_APP": "jobs:app", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}

    def run(*args: str) -> str:
        command = [sys.executable, *args]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def counts() -> dict[str, int]:
        found: dict[str, int] = json.loads(run("-m", "paceline", "status", "--json"))["queues"][0]["counts"]
        return found

    run("jobs.py")
    assert counts()["waiting"] == 30

    log = (tmp_path / "worker.log").open("w")
    command = [sys.executable, "-m", "paceline", "worker"]
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=log, start_new_session=True)
    try:
        _until(lambda: counts()["completed"] >= 5)
        last = json.loads(run("-m", "paceline", "jobs", "--state", "waiting", "--json"))[0]["id"]
        _until(lambda: "limit 'mail-provider' is full, 5 of 5, for " in run("-m", "paceline", "why", last))

        run("-m", "paceline", "limits", "set", "mail-provider", "1000 per 1s", "--for", "1h", "--reason", "raised")
        _until(lambda: counts()["completed"] == 30)
        run("-m", "paceline", "limits", "reset", "mail-provider")

        worker.send_signal(signal.SIGINT)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()
        log.close()
    said = (tmp_path / "worker.log").read_text()
    assert "mail-provider (5 per 10s)" in said and said.count(" started") == 30 and said.count(" completed") == 30


def _until(happened: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, "it took too long"
