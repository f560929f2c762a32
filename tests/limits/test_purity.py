"""The kernel is pure: its modules import the standard library and the words, and nothing that acts or waits."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline.limits

FOLDER = Path(paceline.limits.__file__).parent
MODULES = sorted(FOLDER.glob("**/*.py"))
WORDS = {"paceline.clock", "paceline.checks", "paceline.durations", "paceline.errors"}
EXPLAINS = {"paceline.job"}
"""A word too, but only for putting a decision into words: what decides knows nothing of jobs."""
ACTS = {
    *("asyncio", "time", "random", "secrets", "uuid", "os", "io", "pathlib", "shutil", "tempfile", "glob", "fileinput"),
    *("threading", "_thread", "multiprocessing", "concurrent", "subprocess", "signal", "select", "selectors", "sched"),
    *("socket", "ssl", "http", "urllib", "sqlite3", "dbm", "shelve", "logging", "warnings", "atexit", "contextvars"),
}
"""What reads a clock, waits, draws lots, or touches the world."""


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports by a relative name"
            yield node.module or ""


def test_there_are_modules_to_look_at() -> None:
    assert {path.stem for path in MODULES} >= {"rate", "concurrency", "delay", "spacing", "composite", "rule", "turns"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_kernel_imports_only_the_standard_library_and_the_words(path: Path) -> None:
    for name in imports(path):
        top = name.partition(".")[0]
        if top == "paceline":
            allowed = WORDS | EXPLAINS if path.stem == "explain" else WORDS
            assert name in allowed or name == "paceline.limits" or name.startswith("paceline.limits."), name
        else:
            assert top in sys.stdlib_module_names and top not in ACTS, name


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_kernel_does_nothing_when_it_is_imported_and_opens_nothing_later(path: Path) -> None:
    called = {node.func.id for node in ast.walk(ast.parse(path.read_text())) if _is_plain_call(node)}
    assert called.isdisjoint({"open", "print", "input", "exec", "eval", "__import__", "breakpoint"})
    changed = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Global)]
    assert not changed, "state belongs to meters"


def _is_plain_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
