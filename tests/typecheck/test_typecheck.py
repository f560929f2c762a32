"""The types that users see: what must pass `mypy --strict`, and what must not."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<text>.*)  \[(?P<code>[a-z-]+)\]$")
MARK = re.compile(r"# error: (?P<code>[a-z-]+)$")


@cache
def errors() -> dict[str, list[tuple[int, str]]]:
    """One run of mypy over both files: line and kind of every error by file."""
    files = [HERE / "accepted.py", HERE / "rejected.py"]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), "--no-pretty"]
    done = subprocess.run([*mypy, *map(str, files)], capture_output=True, text=True, cwd=ROOT, timeout=110)
    found: dict[str, list[tuple[int, str]]] = {"accepted.py": [], "rejected.py": []}
    for line in done.stdout.splitlines():
        if match := ERROR.match(line):
            found.setdefault(Path(match["file"]).name, []).append((int(match["line"]), match["code"]))
    assert done.returncode == 1 and found["rejected.py"], done.stdout + done.stderr
    return found


def test_what_users_write_passes_a_strict_type_checker() -> None:
    assert errors()["accepted.py"] == []


def test_what_is_wrong_is_refused_line_by_line() -> None:
    lines = (HERE / "rejected.py").read_text().splitlines()
    expected = [(number, match["code"]) for number, line in enumerate(lines, 1) if (match := MARK.search(line))]
    assert expected and errors()["rejected.py"] == expected


def test_no_error_is_anywhere_else() -> None:
    assert Counter(errors().keys()) == {"accepted.py": 1, "rejected.py": 1}


@pytest.mark.parametrize("name", ["py.typed"])
def test_the_package_says_that_it_is_typed(name: str) -> None:
    assert (ROOT / "src" / "paceline" / name).exists()
