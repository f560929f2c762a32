"""The shape of the source: sizes, names and layers that a newcomer can rely on."""

from __future__ import annotations

import re
from pathlib import Path

import paceline

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "paceline").rglob("*.py"))
VAGUE = {"utils", "util", "common", "helpers", "helper", "misc", "core", "base", "manager", "data", "info"}


def test_no_source_file_is_longer_than_400_lines() -> None:
    long = {str(path.relative_to(ROOT)): n for path in SOURCES if (n := len(path.read_text().splitlines())) > 400}

    assert long == {}


def test_no_sql_file_is_longer_than_400_lines_and_no_function_in_it_than_80() -> None:
    folder = ROOT / "src" / "paceline" / "stores" / "postgres" / "sql"
    files = {path.name: path.read_text() for path in folder.glob("[a-z]*.sql")}
    functions = {
        name: body.count("\n") + 1
        for text in files.values()
        for name, body in re.findall(r"^create function paceline\.(\w+)(.*?)(?:\$\$;|';)$", text, re.M | re.S)
    }

    assert len(functions) > 200
    assert {name: len(text.splitlines()) for name, text in files.items() if len(text.splitlines()) > 400} == {}
    assert {name: lines for name, lines in functions.items() if lines > 80} == {}


def test_no_module_has_a_vague_name() -> None:
    assert [path for path in SOURCES if path.stem in VAGUE] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [path for path in SOURCES if not path.read_text().lstrip().startswith('"""')]

    assert silent == []


def test_nothing_is_left_to_do_later() -> None:
    found = [path for path in SOURCES if re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text())]

    assert found == []


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md")) + (ROOT / "README.md").read_text()
    missing = [name for name in paceline.__all__ if not re.search(rf"\b{re.escape(name)}\b", pages)]

    assert missing == []
