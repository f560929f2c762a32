"""Measure Paceline beside its peers: `python bench/run.py [suite ...] [--rounds 5] [--quick]`.

Every measurement is a process of its own, and the systems take turns (A B A B ...), so that all of them meet the same
moments of a machine that others use too. Medians count. Speed is not a test: the exit code is always 0.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import sqlite_suites as sqlite
import suites
from suites import Case, Results

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TIMEOUT = 900
MEMORY = ("drain", "limiter", "flat")
SQLITE = ("sqlite-drain", "sqlite-add", "sqlite-latency", "sqlite-use", "sqlite-flat")
SUITES = (*MEMORY, *SQLITE, "redis")
PACKAGES = ("pgqueuer", "limits", "litequeue", "huey", "uvloop", "msgspec")


class Plan(NamedTuple):
    """A suite: what is measured, how often, and how it is told."""

    cases: list[Case]
    rounds: int
    describe: Callable[[Results], str]


def plan(rounds: int, jobs: int, quick: bool) -> dict[str, Plan]:
    """All suites; the slow ones take fewer rounds. `sqlite-flat` has its five rounds inside."""
    few, share = min(rounds, 3), 4 if quick else 1
    large = "middle" if quick else "large"
    return {
        "drain": Plan(suites.drain_cases(jobs // share), rounds, suites.drain_report),
        "limiter": Plan(suites.limiter_cases(1 / share), rounds, suites.limiter_report),
        "flat": Plan(suites.flat_cases(1_000 if quick else 3_000, large), few, suites.flat_report),
        "sqlite-drain": Plan(sqlite.drain_cases(jobs // 2 // share), rounds, sqlite.drain_report),
        "sqlite-add": Plan(sqlite.add_cases(5_000 // share), rounds, sqlite.add_report),
        "sqlite-latency": Plan(sqlite.latency_cases(100 if quick else 300), few, sqlite.latency_report),
        "sqlite-use": Plan(sqlite.use_cases(300 if quick else 500), few, sqlite.use_report),
        "redis": Plan(suites.redis_cases(jobs // share), few, suites.redis_report),
        "sqlite-flat": Plan(sqlite.flat_cases(100 if quick else 200, large), 1, sqlite.flat_report),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"{', '.join(SUITES)}; all of them if none is named")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per suite (flat, latency and use: at most 3)")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs in a drain (on SQLite half as many)")
    parser.add_argument("--quick", action="store_true", help="3 rounds, a quarter of the work, flat with 100,000 jobs")
    options = parser.parse_args()
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"unknown suite: {', '.join(sorted(unknown))}")
    rounds = max(1, min(options.rounds, 3) if options.quick else options.rounds)
    plans = plan(rounds, options.jobs, options.quick)
    about = environment()
    texts = []
    for suite in options.suites or SUITES:
        cases, times, describe = plans[suite]
        results = measure(cases, times)
        save(suite, about, results)
        texts.append(describe(results) if all(results.values()) else f"{suite}: some systems gave no numbers")
    print("\n".join(f"{key}: {value}" for key, value in about.items()), end="\n\n")
    print("\n\n".join(texts))


def measure(cases: list[Case], rounds: int) -> Results:
    """All cases in turn, so many times; a case that failed once is left out from then on."""
    results: Results = {case.system: [] for case in cases}
    failed: set[str] = set()
    for number in range(1, rounds + 1):
        for case in cases:
            if case.system in failed:
                continue
            start = time.perf_counter()
            found = child(case)
            took = time.perf_counter() - start
            if found is None:
                failed.add(case.system)
                results[case.system] = []
            else:
                results[case.system].append(found)
            how = "failed" if found is None else "done"
            say(f"{case.suite} round {number} of {rounds}: {case.system} {how} in {took:.1f} s")
    return results


def child(case: Case) -> dict[str, Any] | None:
    """One measurement in a fresh process with the same Python and the same environment."""
    command = [sys.executable, str(HERE / "child.py"), case.suite, case.system, str(case.n)]
    env = os.environ | {"PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        say(error.stderr)
        return None
    except (subprocess.TimeoutExpired, ValueError) as error:
        say(str(error))
        return None
    return found


def environment() -> dict[str, Any]:
    """What the numbers depend on."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "measured": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before",
        "sqlite": f"{sqlite3.sqlite_version}, files on {file_system()}",
        "paceline": code(),
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }


def file_system() -> str:
    """Where the files of the SQLite suites are: in memory, full durability costs nothing."""
    folder = tempfile.gettempdir()
    told = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def code() -> str:
    """Which Paceline is measured: its version, at which commit, changed since or not."""
    found = find_spec("paceline")
    if found is None or found.origin is None:
        return "not installed"
    where = Path(found.origin).parent
    git = ["git", "-C", str(where), "describe", "--always", "--dirty", "--exclude=*"]
    told = subprocess.run(git, capture_output=True, text=True, check=False)
    return f"{version('paceline')}, {told.stdout.strip() or 'no commit'}"


def save(suite: str, about: dict[str, Any], results: Results) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{suite}.json").write_text(json.dumps({"about": about, "results": results}, indent=2) + "\n")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
