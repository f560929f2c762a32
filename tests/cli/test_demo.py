"""`paceline demo`: the storm, the pace, the picture; with nothing but Python around it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from paceline.cli.demo.compare import ideal_seconds, worst_window
from paceline.cli.demo.runs import Progress, Result, tenants
from paceline.cli.demo.service import Arrival, Quota


def test_without_a_terminal_it_shows_both_runs_and_draws_them(tmp_path: Path) -> None:
    # No terminal, no TERM, no LANG, and standard input is closed.
    done = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m paceline demo --jobs 100 0<&-"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert (done.returncode, done.stderr) == (0, "")
    rows = {row[:24].strip(): row[24:].split("  ") for row in done.stdout.splitlines() if row.startswith(" ") or row}
    storm, paced = re.search(r"answered 429 +(\d+) +(\d+)", done.stdout).groups()  # type: ignore[union-attr]
    assert int(storm) > 100
    assert int(paced) == 0
    assert "100 of 100" in "".join(rows["delivered"])
    assert "50 of 50" in "".join(rows["most in one window"])
    root = ElementTree.parse(tmp_path / "paceline-demo.svg").getroot()
    assert root.tag.endswith("svg")
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("jobs", [1, 5, 100, 200, 1000])
def test_every_tenant_has_webhooks_and_none_is_added(jobs: int) -> None:
    names = tenants(jobs)

    assert len(names) == jobs
    assert jobs < 20 or set(names) == {"big", "middle", "small", "tiny"}


def test_the_service_counts_arrivals_in_a_sliding_window() -> None:
    quota = Quota(2, 5.0)

    assert [quota.admits(at) for at in (0.0, 4.0, 4.5, 5.0, 6.0, 9.0)] == [0, 0, 0.5, 0, 3.0, 0]


def test_the_comparison_counts_what_arrived() -> None:
    arrivals = [Arrival(at, "tiny", 200) for at in (0.0, 1.0, 5.0, 5.5)]

    assert worst_window(Result(Progress(), arrivals), 5.0) == 3
    assert [ideal_seconds(jobs, 50, 5.0) for jobs in (1, 50, 51, 200)] == [0, 0, 5, 15]
