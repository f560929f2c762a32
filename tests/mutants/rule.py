"""What a planted bug is: a rule that every engine keeps, the tests that hold it, and an edit per engine that breaks it.

The rule and its tests know no engine, so they stay when an engine is written anew; only the edit is stated anew then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "paceline"
ENGINES = {"python": "memory", "sqlite": "sqlite", "sql": "postgres", "lua": "redis"}
"""Each engine, and the store on which its mutants are tried."""
TESTED_IN = {
    "python": ("worker",),
    "sqlite": ("sqlite", "wakeups"),
    "sql": ("postgres", "wakeups"),
    "lua": ("redis", "wakeups"),
}
"""The folders of tests that hold an engine, beside those that hold all of them."""


@dataclass(frozen=True)
class Edit:
    """One text in one file of the package, and what takes its place. It must be there exactly so many times."""

    file: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True)
class Planted:
    """A bug that is planted while the tests run: a function of this name in `planted.py`."""

    name: str


@dataclass(frozen=True)
class Rule:
    """`says` is the rule; `caught_by` names the tests of which at least one must fail when an engine breaks it.

    A test may be named with one of its cases, `test_it[case]`, and tests of another engine's folder do not count.
    """

    says: str
    caught_by: tuple[str, ...]
    python: Edit | Planted | None = None
    sqlite: Edit | None = None
    sql: Edit | None = None
    lua: Edit | None = None
    equivalent: str = ""
    """Why an edit changes nothing that anybody can see. Then the tests must pass."""

    def edits(self) -> dict[str, Edit | Planted]:
        every = {"python": self.python, "sqlite": self.sqlite, "sql": self.sql, "lua": self.lua}
        return {engine: edit for engine, edit in every.items() if edit is not None}


def sql(file: str, old: str, new: str, times: int = 1) -> Edit:
    return Edit(f"stores/postgres/sql/{file}.sql", old, new, times)


def lua(file: str, old: str, new: str, times: int = 1) -> Edit:
    return Edit(f"stores/redis/lua/{file}.lua", old, new, times)


def beside(file: str, old: str, new: str, times: int = 1) -> Edit:
    """An edit in the Python around an engine, `redis/listeners`."""
    return Edit(f"stores/{file}.py", old, new, times)


class CannotPlant(AssertionError):
    """The text of an edit is not in the engine any more."""


def plant(edit: Edit, package: Path) -> None:
    """Write the bug into a copy of the package."""
    file = package / edit.file
    text = file.read_text() if file.exists() else ""
    found = text.count(edit.old)
    if found != edit.times:
        raise CannotPlant(
            f"{edit.file} has this text {found} times and not {edit.times}: state this rule's edit anew\n{edit.old}"
        )
    file.write_text(text.replace(edit.old, edit.new))


@cache
def files_of_tests() -> dict[str, Path]:
    """Every test by its name, with its file; names are unique where rules use them."""
    found: dict[str, Path] = {}
    for file in sorted((ROOT / "tests").glob("*/test_*.py")):
        if file.parent.name in ("stores", "histories", "wakeups", "sqlite", "postgres", "redis", "worker"):
            for line in file.read_text().splitlines():
                words = line.removeprefix("async ").split("(")[0]
                if words.startswith("def test_"):
                    found.setdefault(words.removeprefix("def "), file)
    return found


def name_of(test: str) -> str:
    """A test without its case."""
    return test.partition("[")[0]


def catchers(engine: str, rule: Rule) -> list[str]:
    """The tests of a rule that can catch a bug of this engine."""
    everywhere = ("stores", "histories", *TESTED_IN[engine])
    return [test for test in rule.caught_by if files_of_tests()[name_of(test)].parent.name in everywhere]
