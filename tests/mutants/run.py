"""Try one planted bug: run the tests of its rule in a process of their own, on a copy of the package that has the bug.

Every such process has an empty database of PostgreSQL, or a Redis of its own, and installs the copy's functions there:
whatever runs has the bug. Beside the tests of the rule one plain test runs that must still pass, or the engine is
simply broken.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import psycopg

from ..servers.postgres import Server
from .rule import ENGINES, ROOT, SOURCE, Edit, Planted, files_of_tests, name_of, plant

STILL_WORKS = "test_counts_follow_a_job_through_its_life"
LONGEST = 900
_numbers = count(1)


@dataclass(frozen=True)
class Outcome:
    """Which tests failed and which passed, and how long it took."""

    failed: tuple[str, ...]
    passed: tuple[str, ...]
    seconds: float
    output: str

    @property
    def caught(self) -> bool:
        return bool(set(self.failed) - {STILL_WORKS}) and STILL_WORKS in self.passed


def run(engine: str, tests: Iterable[str], bug: Edit | Planted | None) -> Outcome:
    """The tests on one engine with one bug, or with none."""
    folder = Path(tempfile.mkdtemp(prefix="pl-mutant-"))
    try:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if engine == "sql":
            environment["PACELINE_TEST_POSTGRES"] = empty_database()
        if isinstance(bug, Planted):
            environment["PACELINE_MUTANT"] = bug.name
        else:
            package = folder / "src" / "paceline"
            shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
            environment["PYTHONPATH"] = os.pathsep.join([str(package.parent), str(ROOT)])
            if bug is not None:
                plant(bug, package)
        return _pytest(engine, [STILL_WORKS, *tests], environment, folder / "report.xml")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def postgres() -> Server:
    """One server for all bugs in SQL."""
    running = Server().__enter__()
    atexit.register(running.__exit__)
    return running


def empty_database() -> str:
    """Where a run finds its own database."""
    name = f"mutant_{next(_numbers)}"
    with psycopg.connect(postgres().url(), autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return f"{postgres().folder} {name}"


def _pytest(engine: str, tests: list[str], environment: dict[str, str], report: Path) -> Outcome:
    places = [f"{files_of_tests()[name]}::{name}" for name in dict.fromkeys(name_of(test) for test in tests)]
    cases = " or ".join(f"({test[:-1].replace('[', ' and ')})" if "[" in test else test for test in tests)
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}", "--timeout=60"]
    options += ["-p", "tests.mutants.planted"] if environment.get("PACELINE_MUTANT") else []
    command = [sys.executable, "-m", "pytest", *options, *places, "-k", f"{ENGINES[engine]} and ({cases})"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        output = f"not done after {LONGEST} s\n{error.stdout!r}"
    failed, passed = _read(report) if report.exists() else ([], [])
    return Outcome(tuple(failed), tuple(passed), time.monotonic() - began, output)


def _read(report: Path) -> tuple[list[str], list[str]]:
    """The names of the tests that failed in any of their cases, and of those that passed in all."""
    failed: dict[str, None] = {}
    seen: dict[str, None] = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        name = (case.get("name") or "").split("[")[0]
        seen[name] = None
        if any(case.find(kind) is not None for kind in ("failure", "error")):
            failed[name] = None
    return list(failed), [name for name in seen if name not in failed]
