"""How long a program takes that only imports Paceline, and `paceline --help`, beside a Python that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases import Case, Size
from bench.places import Place
from bench.report import Table, figure

ROUNDS = 1
"""The turns are inside."""
TURNS = 10


def cases(size: Size) -> list[Case]:
    return [Case("imports", "memory", "ours", TURNS)]


async def measure(place: Place, case: Case) -> dict[str, Any]:
    command = Path(sys.executable).with_name("paceline")
    ways: dict[str, Sequence[str]] = {
        "nothing": (sys.executable, "-c", "pass"),
        "import": (sys.executable, "-c", "import paceline"),
        "help": (str(command), "--help"),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for turn in range(case.n + 1):
        for name, words in ways.items():
            start = time.perf_counter()
            subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL)
            if turn:  # the first one warms the disk
                took[name].append((time.perf_counter() - start) * 1e3)
    found = {name: median(times) for name, times in took.items()}
    return {
        **found,
        "import_ratio": found["import"] / found["nothing"],
        "help_ratio": found["help"] / found["nothing"],
    }


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    rows = [
        [words, figure(runs, name)]
        for runs in results.values()
        for name, words in {"nothing": "python -c pass", "import": "import paceline", "help": "paceline --help"}.items()
    ]
    return [Table(["from nothing, ms", "median of 10"], rows)]
