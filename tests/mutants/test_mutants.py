"""A guarantee's test that passes on its planted bug is a broken test.

Here: every bug can still be planted, every test that should catch it exists, and the Python ones are planted and
caught. `make mutants` plants those in SQL and Lua too, which takes longer.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .report import Tried, in_words, read_page
from .rule import SOURCE, CannotPlant, Edit, Rule, catchers, files_of_tests, name_of, plant
from .rules import RULES
from .run import run

EDITS = [
    pytest.param(edit, id=f"{engine}-{rule.says}")
    for rule in RULES
    for engine, edit in rule.edits().items()
    if isinstance(edit, Edit)
]
IN_PYTHON = [rule for rule in RULES if rule.python is not None]


@pytest.mark.parametrize("edit", EDITS)
def test_a_planted_bug_still_finds_its_place(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / edit.file).parent.mkdir(parents=True)
    shutil.copy(SOURCE / edit.file, tmp_path / edit.file)

    plant(edit, tmp_path)

    assert (tmp_path / edit.file).read_text() != (SOURCE / edit.file).read_text()


def test_a_bug_whose_place_is_gone_asks_to_be_stated_anew(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("return 1")

    with pytest.raises(CannotPlant, match="state this rule's edit anew"):
        plant(Edit("a.lua", "return 2", "return 3"), tmp_path)


def test_every_rule_has_tests_that_exist() -> None:
    missing = {test for rule in RULES for test in rule.caught_by if name_of(test) not in files_of_tests()}

    assert missing == set()
    assert [rule.says for rule in RULES for engine in rule.edits() if not catchers(engine, rule)] == []
    assert [rule.says for rule in RULES if not rule.caught_by or not rule.edits()] == []


def test_every_rule_is_stated_once() -> None:
    said = [rule.says for rule in RULES]

    assert len(said) == len(set(said))


def test_the_table_has_every_bug_as_it_is_now() -> None:
    """A row that is missing here: `python -m tests.mutants --engine <engine> "<rule>"` tries the bug and writes it."""
    rows = read_page()
    bugs = {(rule.says, engine): in_words(edit) for rule in RULES for engine, edit in rule.edits().items()}

    assert [key for key, words in bugs.items() if f"| {words} |" not in rows.get(key, "")] == []
    assert rows.keys() - bugs.keys() == {("rule", "engine")}


@pytest.mark.parametrize("rule", IN_PYTHON, ids=lambda rule: rule.says)
def test_a_planted_bug_is_caught_by_the_test_of_its_guarantee(rule: Rule) -> None:
    tried = Tried("python", rule, run("python", rule.caught_by, rule.python))

    assert tried.as_expected, f"not caught, or not run:\n{tried.outcome.output[-2000:]}"


def test_without_a_planted_bug_the_same_tests_pass() -> None:
    tests = sorted({test for rule in IN_PYTHON for test in rule.caught_by})

    outcome = run("python", tests, None)

    assert (outcome.failed, set(outcome.passed) >= set(tests)) == ((), True), outcome.output[-2000:]
