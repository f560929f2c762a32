"""Where names live: tables in the schema that the user named, the functions of a release in a schema of their own.

Every text, here and in `sql/`, is written `paceline.NAME`. It is translated once: to the schema of the functions where
NAME is a function or a type of theirs, otherwise to the schema of the tables.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

from paceline.errors import ConfigError

STEPS = (
    "0001_tables",
    "0002_functions",
    "0003_limits_by_task",
    "0004_gate",
    "0005_functions_apart",
    "0006_names",
    "0007_waiting_counts",
    "0008_tally",
)
"""What changes tables, in order; a step that was released never changes, and names no function."""
FORMAT = len(STEPS)
"""The number of the tables that this release needs."""
OLDEST = 8
"""The earliest format whose functions work on the tables of this one. A step that only adds (an index, a column with a
default) leaves it; one that changes what a row means or who locks what raises it to its own number."""
FUNCTIONS = (
    "constants",
    "types",
    "newest",
    "kinds",
    "meters",
    "classes",
    "fold",
    "insert",
    "tally",
    "finish",
    "take_back",
    "consider",
    "reserve",
    "choose",
    "start",
    "idle",
    "claim",
    "limits",
    "gate",
    "begun",
    "manage",
    "prune",
    "read",
    "overview",
    "wake",
    "warm",
)
"""The files of functions and their types, in the order in which types are needed."""

_OFF = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_material", "jit")
PLANNER = "set plan_cache_mode = force_generic_plan set join_collapse_limit = 1 " + " ".join(
    f"set {name} = off" for name in _OFF
)
"""What a function is planned with where its text says `by index`: tables that were empty when a plan was made grow to
millions of rows, every question here has an index that answers it, and joins are written in the order to follow."""

BY_KEY = "set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off"
"""The same in short, for a function without joins of tables: every setting takes its time in every call."""

LONGEST = 50
"""PostgreSQL cuts names after 63 characters, and the name of the schema of functions has 13 more."""
_NAME = re.compile(r"\bpaceline\.([a-z_][a-z0-9_]*)")
_FUNCTION = re.compile(r"^create (?:function|type) paceline\.(\w+)", re.M)
_RELATION = re.compile(
    r"^(create|alter|drop) (table|sequence) (?:if (?:not )?exists )?paceline\.(\w+)(?: rename to (\w+))?", re.M
)


def check_schema(name: object) -> str:
    """A schema's name: a plain lower-case word, so that it reads the same everywhere."""
    if not (isinstance(name, str) and re.fullmatch(r"[a-z_][a-z0-9_]*", name) and len(name) <= LONGEST):
        raise ConfigError(
            f"schema={name!r} is wrong: expected lower-case letters, digits and underscores, {LONGEST} at most",
            option="schema",
            value=name,
        )
    return name


def read_sql(name: str) -> str:
    """One of our `.sql` files, as it is written."""
    return files("paceline.stores.postgres").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def step_text(step: str, schema: str) -> str:
    """A numbered step, written for the schema of the tables: it may speak of functions that earlier releases had."""
    return read_sql(step).replace("paceline.", f"{schema}.")


@cache
def functions_text() -> str:
    """All functions and their types."""
    text = "\n".join(read_sql(name) for name in FUNCTIONS)
    return text.replace("/* by index */", PLANNER).replace("/* by key */", BY_KEY)


@cache
def fingerprint() -> str:
    """What tells the functions of this release from those of any other."""
    return hashlib.sha256(functions_text().encode()).hexdigest()[:10]


@cache
def function_names() -> tuple[str, ...]:
    """The functions and types of this release; a name comes as often as it is defined."""
    return tuple(_FUNCTION.findall(functions_text()))


@cache
def relations(steps: tuple[str, ...] = STEPS) -> dict[str, str]:
    """What there is after these steps, and whether it is a table or a sequence."""
    found = {"version": "table"}
    for step in steps:
        for what, kind, name, renamed in _RELATION.findall(read_sql(step)):
            if what == "create":
                found[name] = kind
            elif what == "drop" or renamed:
                found.pop(name)
            if renamed:
                found[renamed] = kind
    return found


class Names:
    """Translates texts for one schema of tables and the schema of this release's functions on them."""

    def __init__(self, schema: str) -> None:
        self.tables = schema
        self.functions = f"{schema}_f_{fingerprint()}"
        self._ours = frozenset(function_names())
        self._texts: dict[str, str] = {}

    def text(self, query: str) -> str:
        """A text with the names that its objects have in the database."""
        found = self._texts.get(query)
        if found is None:
            found = self._texts[query] = _NAME.sub(self._real_name, query)
        return found

    def _real_name(self, found: re.Match[str]) -> str:
        name = found[1]
        return f"{self.functions if name in self._ours else self.tables}.{name}"
