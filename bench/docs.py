"""Put the figures of `bench/results/*.json` into `docs/performance.md`, and draw its pictures: `python -m bench.docs`.

Figures stand in that page only between marks, `<!-- figures: name -->` and `<!-- end -->`; only this puts them there.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.ceiling import busy, shares
from bench.pictures import pictures
from bench.report import Table
from bench.suites import SUITES
from bench.targets import Measured, verdicts

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
PICTURES = ROOT / "docs" / "pictures"
BOUNDS = {"shares": shares, "busy": busy}
MARKS = re.compile(r"(<!-- figures: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def load(folder: Path = RESULTS) -> tuple[Measured, dict[str, Any]]:
    """The results by suite, and what they say about the run."""
    contents = {name: json.loads(file.read_text()) for name in SUITES if (file := folder / f"{name}.json").exists()}
    measured: Measured = {name: content["results"] for name, content in contents.items()}
    runs = Counter(_run(content) for content in contents.values())
    about: dict[str, Any] = {}
    for content in contents.values():
        if _run(content) == runs.most_common(1)[0][0]:
            about |= content["about"]
    if doubts := provisional(contents):
        about = {"provisional": doubts} | about
    return measured, about


def _run(content: dict[str, Any]) -> tuple[str, str]:
    """Which run these results are of."""
    return content["about"]["measured"], content["about"]["paceline"]


def provisional(contents: dict[str, dict[str, Any]]) -> str:
    """Why these are not the results of one whole run; nothing if they are."""
    doubts = []
    runs = Counter(_run(content) for content in contents.values())
    for run, _ in runs.most_common()[1:]:
        suites = ", ".join(name for name, content in contents.items() if _run(content) == run)
        load = max(content["about"]["load_before"] for content in contents.values() if _run(content) == run)
        doubts.append(f"{suites}: of another run ({run[0]}, {run[1]}, load {load})")
    if any(content.get("quick", True) for content in contents.values()):
        doubts.append("quick: less of everything, on a machine that may have been busy")
    return "; ".join(doubts)


def render(page: str, measured: Measured, about: dict[str, Any]) -> str:
    """The page with all figures anew."""
    return MARKS.sub(lambda found: f"{found[1]}{figures(found[2], measured, about)}\n{found[3]}", page)


def figures(name: str, measured: Measured, about: dict[str, Any]) -> str:
    """`about`, `targets`, `shares`, `busy`, a suite, or one store of the suite `speed`."""
    if name == "about":
        return _about(about)
    if name == "targets":
        return verdicts(measured).markdown()
    if name in BOUNDS:
        return BOUNDS[name](measured).markdown()
    suite, _, store = name.partition(" ")
    results = {key: runs for key, runs in measured.get(suite, {}).items() if key.startswith(store)}
    tables: list[Table] = import_module(f"bench.suites.{suite}").tables(results)
    return "\n\n".join(table.markdown() for table in tables)


def _about(about: dict[str, Any]) -> str:
    lines = [f"| {key} | {value} |" for key, value in about.items() if isinstance(value, str | int | float)]
    versions = ", ".join(f"{name} {number}" for name, number in about.get("versions", {}).items())
    missing = "; ".join(about.get("missing", [])) or "nothing"
    return "\n".join(["| | |", "|---|---|", *lines, f"| versions | {versions} |", f"| left out | {missing} |"])


def write() -> None:
    measured, about = load()
    PAGE.write_text(render(PAGE.read_text(), measured, about))
    PICTURES.mkdir(exist_ok=True)
    for name, drawn in pictures(measured).items():
        (PICTURES / name).write_text(drawn)


if __name__ == "__main__":
    write()
