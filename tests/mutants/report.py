"""The table of planted bugs in docs/internals/mutants.md."""

from __future__ import annotations

from dataclasses import dataclass

from .rule import ROOT, Edit, Planted, Rule
from .rules import RULES
from .run import STILL_WORKS, Outcome

PAGE = ROOT / "docs" / "internals" / "mutants.md"
BEGINNING = """# Planted bugs

Each rule below is kept by three engines: Python (memory, SQLite), SQL (PostgreSQL) and Lua (Redis). For each of them
the table has a bug that breaks the rule and the conformance tests that fail then, on that engine's store. How a process
learns of what others did is Python of its own for SQLite (`sqlite`), PostgreSQL (`sql`) and Redis (`lua`): those bugs
are caught by tests of wake-ups between processes, and by tests of that store.
`make mutants` copies the package, plants one bug after the other, runs only those tests and writes this page. A bug
that survives is an error, and so is one whose text is no longer in the engine. Beside them a plain test runs that has
to pass, so that an engine that is simply broken counts for nothing, and a copy without a bug has to pass all of them.

The bugs are in `tests/mutants/about_*.py`. An engine that is written anew keeps the rules and the tests; only its edits
are stated anew. `make test` checks that every edit applies and that every test exists, and plants the Python ones.

"""


@dataclass(frozen=True)
class Tried:
    """One rule, broken in one engine."""

    engine: str
    rule: Rule
    outcome: Outcome

    @property
    def breaks_everything(self) -> bool:
        return "nothing works" in self.rule.says

    @property
    def as_expected(self) -> bool:
        if self.breaks_everything:
            return STILL_WORKS in self.outcome.failed
        if self.rule.equivalent:
            return not self.outcome.failed and STILL_WORKS in self.outcome.passed
        return self.outcome.caught


def write_page(tried: list[Tried]) -> None:
    """Renew the rows of what was tried; the others stay as long as their bug is the same."""
    rows = read_page() | {(each.rule.says, each.engine): row(each) for each in tried if each.as_expected}
    lines = ["| rule | engine | the bug | caught by | s |", "|---|---|---|---|---|"]
    for rule in RULES:
        for engine, edit in rule.edits().items():
            line = rows.get((rule.says, engine))
            if line is not None and f"| {in_words(edit)} |" in line:
                lines.append(line)
    PAGE.write_text(BEGINNING + "\n".join(lines) + "\n")


def read_page() -> dict[tuple[str, str], str]:
    """The rows of the table by rule and engine."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    rows = [(line, line.split(" | ")) for line in lines if line.startswith("| ")]
    return {(cells[0].removeprefix("| "), cells[1]): line for line, cells in rows}


def row(tried: Tried) -> str:
    failed = [test for test in tried.outcome.failed if test != STILL_WORKS]
    by = ", ".join(f"`{test}`" for test in failed) or f"nobody: {tried.rule.equivalent}"
    bug = in_words(tried.rule.edits()[tried.engine])
    return f"| {tried.rule.says} | {tried.engine} | {bug} | {by} | {tried.outcome.seconds:.0f} |"


def in_words(edit: Edit | Planted) -> str:
    """A bug as the table shows it."""
    if isinstance(edit, Planted):
        return edit.name.replace("_", " ")
    return f"`{edit.file.rpartition('/')[2]}`: {code(edit.old)} → {code(edit.new)}"


def code(text: str) -> str:
    """A text on one line, short enough for a table."""
    flat = " ".join(text.split()).replace("|", "\\\\|")
    flat = flat if len(flat) <= 90 else flat[:87] + "…"
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`" if flat else "nothing"
