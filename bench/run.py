"""Measure Paceline beside its peers: `python bench/run.py [drain] [limiter] [flat] [redis] [--rounds 5] [--quick]`.

Every measurement is a process of its own, and the systems take turns (A B A B ...), so that all of them meet the same
moments of a machine that others use too. Medians count. Speed is not a test: the exit code is always 0.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import suites
from suites import Case, Results

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TIMEOUT = 900


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "suites", nargs="*", metavar="suite", help="drain, limiter, flat, redis; all of them if none is named"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds per suite (flat: at most 3)")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs in a drain")
    parser.add_argument("--quick", action="store_true", help="3 rounds, a quarter of the work, flat with 100,000 jobs")
    options = parser.parse_args()
    wanted = options.suites or ["drain", "limiter", "flat", "redis"]
    if unknown := set(wanted) - {"drain", "limiter", "flat", "redis"}:
        parser.error(f"unknown suite: {', '.join(sorted(unknown))}")
    rounds, jobs = max(1, options.rounds), options.jobs
    if options.quick:
        rounds, jobs = min(rounds, 3), jobs // 4
    plans: dict[str, tuple[list[Case], int, Callable[[Results], str]]] = {
        "drain": (suites.drain_cases(jobs), rounds, suites.drain_report),
        "limiter": (suites.limiter_cases(0.25 if options.quick else 1), rounds, suites.limiter_report),
        "flat": (
            suites.flat_cases(1_000 if options.quick else 3_000, "middle" if options.quick else "large"),
            min(rounds, 3),
            suites.flat_report,
        ),
        "redis": (suites.redis_cases(jobs), min(rounds, 3), suites.redis_report),
    }
    about = environment()
    texts = []
    for suite in wanted:
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
    for package in ("pgqueuer", "limits", "uvloop", "msgspec"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "measured": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before",
        "paceline": code(),
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }


def code() -> str:
    """Which Paceline is measured: where it was imported from, at which commit, changed since or not."""
    found = find_spec("paceline")
    if found is None or found.origin is None:
        return "not installed"
    where = Path(found.origin).parent
    git = ["git", "-C", str(where), "describe", "--always", "--dirty", "--exclude=*"]
    told = subprocess.run(git, capture_output=True, text=True, check=False)
    return f"{where}, {told.stdout.strip() or 'no commit'}"


def save(suite: str, about: dict[str, Any], results: Results) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{suite}.json").write_text(json.dumps({"about": about, "results": results}, indent=2) + "\n")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
