"""Plant every bug, one after the other, and see it caught: `make mutants`, `python -m tests.mutants --engine lua turn`.

What was tried and caught is written into the table in docs/internals/mutants.md.
"""

from __future__ import annotations

import argparse

from .report import Tried, write_page
from .rule import ENGINES, Rule, catchers, name_of
from .rules import RULES
from .run import STILL_WORKS, Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only rules that contain one of these words")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="only this engine; may be said again")
    asked = parser.parse_args()
    engines = asked.engine or list(ENGINES)
    rules = [rule for rule in RULES if not asked.words or any(word in rule.says for word in asked.words)]
    if not all([clean(engine, rules) for engine in engines]):
        return 1
    tried = [attempt(engine, rule) for engine in engines for rule in rules if engine in rule.edits()]
    survived = [each for each in tried if not each.as_expected]
    print(f"{len(tried)} planted, {len(survived)} not as expected")
    return min(len(survived), 1)


def clean(engine: str, rules: list[Rule]) -> bool:
    """Without a bug the same tests pass on the same kind of copy, some for each rule."""
    of_rules = [catchers(engine, rule) for rule in rules if engine in rule.edits()]
    tests = sorted({test for tests in of_rules for test in tests})
    if not tests:
        return True
    outcome = run(engine, tests, None)
    ran = all(any(name_of(test) in outcome.passed for test in tests) for tests in of_rules)
    passes = not outcome.failed and ran
    print(f"{engine:6} {outcome.seconds:5.1f} s  {'passes' if passes else 'FAILS '}  without a bug", flush=True)
    if not passes:
        print(outcome.output[-4000:])
    return passes


def attempt(engine: str, rule: Rule) -> Tried:
    outcome = run(engine, catchers(engine, rule), rule.edits()[engine])
    tried = Tried(engine, rule, outcome)
    write_page([tried])
    print(f"{engine:6} {outcome.seconds:5.1f} s  {verdict(outcome, rule)}  {rule.says}", flush=True)
    return tried


def verdict(outcome: Outcome, rule: Rule) -> str:
    if outcome.caught:
        return "caught  "
    if STILL_WORKS not in outcome.passed:
        return "broken  "
    return "the same" if rule.equivalent else "SURVIVED"


if __name__ == "__main__":
    raise SystemExit(main())
