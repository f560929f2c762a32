"""plpgsql_check over all functions: names, columns and types that do not exist, found without running them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from paceline.stores.postgres import schema
from paceline.stores.postgres.names import Names

from ..servers.postgres import Server

NAMES = Names("paceline")
FINDINGS = """select concat(p.proname, ', line ', f.lineno, ': ', f.message, ' (', f.detail, ')')
from pg_proc p join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'
cross join lateral plpgsql_check_function_tb(p.oid, fatal_errors => false, extra_warnings => false) as f
where p.pronamespace = %s::regnamespace and p.prorettype <> 'trigger'::regtype
    and (f.level = 'error' or f.message !~ %s) order by 1"""
KNOWN = "^(target type is different type than source type|too few attributes for composite variable|unused variable)"
"""Assignments that cast, rows that are filled in part: both are meant."""


@pytest.fixture(scope="module")
def database() -> Iterator[psycopg.Connection[Any]]:
    newest = max(Path("/usr/lib/postgresql").glob("*"), key=lambda folder: float(folder.name))
    with Server(binaries=newest) as server, psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("create extension plpgsql_check")
        connection.execute(schema.script("paceline"))
        yield connection


def findings(connection: psycopg.Connection[Any]) -> list[str]:
    return [said for (said,) in connection.execute(FINDINGS, (NAMES.functions, KNOWN)).fetchall()]


def test_every_function_is_sound(database):
    assert findings(database) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("perform 1 from paceline.lane where colour = 1", 'column "colour" does not exist'),
        ("perform paceline.no_such_step(1)", "does not exist"),
        ("update paceline.lane set state = 'ready'::text", "is of type smallint"),
    ],
)
def test_a_function_that_is_not_is_found(database, body, said):
    place = f"{NAMES.functions}.planted"
    text = f"create function {place}() returns void language plpgsql as $$ begin {NAMES.text(body)}; end $$"
    with database.transaction(force_rollback=True):
        database.execute(text)
        (found,) = findings(database)

    assert said in found
