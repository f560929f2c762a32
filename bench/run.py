"""Measure Paceline beside its peers: `python -m bench.run [suite ...] [--store redis] [--rounds 3] [--quick]`.

Every measurement is a process of its own, and the systems take turns (A B C A B C ...), so that all of them meet the
same moments of the machine. Medians count. Speed is not a test: the exit code is 0 whether targets are met or not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import docs
from bench.about import about
from bench.cases import Case, Size
from bench.ceiling import busy, shares
from bench.places import Places
from bench.progress import Progress
from bench.suites import SUITES
from bench.systems import PEERS, STORES, why_not
from bench.targets import verdicts

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PATIENCE = 1200
"""Seconds after which a measurement is given up."""
Results = dict[str, list[dict[str, Any]]]


def main() -> None:
    options = _options()
    absent = {peer: why for peer in PEERS if peer.store in options.store and (why := why_not(peer))}
    size = Size(options.quick, tuple(absent))
    suites = {name: import_module(f"bench.suites.{name}") for name in options.suites}
    plans = {
        name: [case for case in suite.cases(size) if case.store in options.store] for name, suite in suites.items()
    }
    rounds = {name: min(options.rounds, getattr(suite, "ROUNDS", options.rounds)) for name, suite in suites.items()}
    whole = not options.quick and set(suites) == set(SUITES) and set(options.store) == set(STORES)
    added = options.add and not options.quick and set(options.store) == set(STORES)
    folder = RESULTS if whole or added else RESULTS / "partial"
    found = about()
    found["missing"] = [f"{peer.system} on {peer.store}: not measured, {why}" for peer, why in absent.items()]
    measured: dict[str, Results] = {}
    total = sum(len(cases) * rounds[name] for name, cases in plans.items())
    with Places() as places, Progress(total) as progress:
        runner = Runner(places, progress, options.through.split())
        for name, cases in plans.items():
            start = time.monotonic()
            measured[name] = runner.measure(cases, rounds[name])
            took = round(time.monotonic() - start)
            found["missing"] += runner.failed
            facts = {"about": found, "quick": options.quick, "rounds": rounds[name], "seconds": took}
            save(folder / f"{name}.json", facts | {"results": measured[name]})
    tell(measured, found)
    if whole or added:
        docs.write()


def tell(measured: dict[str, Results], found: dict[str, Any]) -> None:
    """All tables: the suites, how far from the ceilings, the targets, and what the figures depend on."""
    tables = [
        table for name, results in measured.items() for table in import_module(f"bench.suites.{name}").tables(results)
    ]
    if "ceilings" in measured and "speed" in measured:
        tables += [shares(measured), busy(measured)]
    tables.append(verdicts(measured))
    print("\n\n".join(table.text() for table in tables if table.rows))
    print("\n" + "\n".join(found["missing"]) if found["missing"] else "")
    print("\n".join(f"{key}: {_plain(value)}" for key, value in found.items() if key != "missing"))


def _plain(value: Any) -> str:
    return ", ".join(f"{name} {number}" for name, number in value.items()) if isinstance(value, dict) else str(value)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"{', '.join(SUITES)}; all of them if none is named")
    parser.add_argument("--store", action="append", choices=STORES, help="only this store; may be repeated")
    parser.add_argument("--rounds", type=int, help="3, or 1 of a quick run")
    parser.add_argument("--quick", action="store_true", help="less of everything, in under three minutes")
    parser.add_argument(
        "--add", action="store_true", help="put whole suites beside the last whole run, also on the page, which says so"
    )
    parser.add_argument(
        "--through", default="", metavar="COMMAND", help="before each measurement: taskset -c 1, flock ..."
    )
    options = parser.parse_args()
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"unknown suite: {', '.join(sorted(unknown))}")
    options.suites = options.suites or SUITES
    options.store = options.store or STORES
    options.rounds = max(1, options.rounds or (1 if options.quick else 3))
    return options


class Runner:
    """Does the measurements of a suite, each in a process of its own."""

    def __init__(self, places: Places, progress: Progress, through: list[str]) -> None:
        self.places = places
        self.progress = progress
        self.through = through
        self.failed: list[str] = []

    def measure(self, cases: list[Case], rounds: int) -> Results:
        """All cases in turn, so many times; a case that failed once is left out."""
        results: Results = {case.key: [] for case in cases}
        self.failed = []
        for number in range(1, rounds + 1):
            for case in cases:
                self.progress.say(f"{case.suite}, round {number}: {case.key}")
                if case.key in results:
                    found = self._child(case)
                    if found is None:
                        del results[case.key]
                        self.failed.append(f"{case.suite}, {case.key}: failed")
                    else:
                        results[case.key].append(found)
                self.progress.step()
        return results

    def _child(self, case: Case) -> dict[str, Any] | None:
        """One measurement with the same Python and the same environment, on an empty store."""
        with self.places.fresh(case.store) as place:
            program = [*self.through, sys.executable, "-m", "bench.child"]
            words = [case.suite, case.store, case.spec, str(case.n), str(case.processes)]
            command = [*program, *words, "--url", place.url, "--server", str(place.server)]
            env = os.environ | {"PYTHONHASHSEED": "0"}
            try:
                options: Any = {"cwd": ROOT, "env": env, "capture_output": True, "text": True, "timeout": PATIENCE}
                done = subprocess.run(command, check=True, **options)
                found: dict[str, Any] = json.loads(done.stdout)
            except subprocess.CalledProcessError as error:
                self.progress.note(f"{case.suite}, {case.key} failed:\n{error.stderr[-2000:]}")
                return None
            except (subprocess.TimeoutExpired, ValueError) as error:
                self.progress.note(f"{case.suite}, {case.key} failed: {error}")
                return None
            return found


def save(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(_rounded(content), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    """Five digits mean more than enough."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
