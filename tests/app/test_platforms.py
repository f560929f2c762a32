"""Systems that lack what Unix has, and modules that cannot be imported: what is wrong is said, nothing is hidden."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

AS_ON_WINDOWS = """
import os, signal, socket, time
for module, names in {
    os: ("register_at_fork", "fork", "getuid", "geteuid", "pipe2"),
    signal: ("SIGTSTP", "SIGCONT", "SIGUSR1", "SIGHUP", "SIGKILL", "SIGQUIT"),
    socket: ("TCP_KEEPIDLE", "TCP_USER_TIMEOUT"),
    time: ("CLOCK_BOOTTIME",),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
import sys
sys.modules["fcntl"] = sys.modules["pwd"] = sys.modules["grp"] = sys.modules["resource"] = None
"""


def run(program: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


def test_without_forks_and_unix_signals_every_module_imports_and_jobs_run(tmp_path: Path) -> None:
    done = run(
        AS_ON_WINDOWS
        + """
import asyncio, importlib, pkgutil, paceline
for found in pkgutil.walk_packages(paceline.__path__, "paceline."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
from paceline import *

async def main(url):
    app = App(url)
    @app.task()
    async def add(a: int, b: int) -> int:
        return a + b
    async with app:
        job = await add.enqueue(40, 2)
        await app.worker().run(until_empty=True)
        print(await job.result())

asyncio.run(main("memory://"))
asyncio.run(main("sqlite:///" + sys.argv[1]))
""",
        str(tmp_path / "jobs.db"),
    )

    assert (done.stdout, done.stderr) == ("42\n42\n", "")


def test_several_processes_are_refused_in_words_where_signals_are_missing(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text('from paceline import App\napp = App("sqlite:///jobs.db")\n')
    done = run(
        AS_ON_WINDOWS + "from paceline.cli import main\nsys.argv[1:] = ['worker', 'shop:app', '-p', '2']\nmain()\n",
        cwd=tmp_path,
    )

    assert done.returncode == 2
    assert "need Unix signals" in done.stderr and "Traceback" not in done.stderr


def test_an_error_inside_a_module_is_shown_when_a_name_is_imported() -> None:
    broken = """
import importlib, os, paceline
load = importlib.import_module
paceline._import_module = lambda name: os.no_such_thing if name == "paceline.app" else load(name)
"""
    done = run(broken + "from paceline import App")

    assert "paceline.app cannot be imported: module 'os' has no attribute 'no_such_thing'" in done.stderr
    assert "AttributeError: module 'os' has no attribute 'no_such_thing'" in done.stderr
    assert "ImportError: cannot import name" not in done.stderr


def test_a_name_that_does_not_exist_is_still_an_import_error() -> None:
    done = run("import paceline; print(hasattr(paceline, 'nothing')); from paceline import nothing")

    assert done.stdout == "False\n"
    assert "cannot import name 'nothing'" in done.stderr
