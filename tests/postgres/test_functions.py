"""The texts of all functions, read by the server itself: what a step would only find out when it is taken."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from paceline.stores import postgres
from paceline.stores.postgres.names import function_names, functions_text, relations

from ..servers.fresh import NAMES, server

FOLDER = Path(postgres.__file__).parent
DEFINITIONS = "select pg_get_functiondef(oid) from pg_proc where pronamespace = %s::regnamespace order by oid"
STRICT = "set check_function_bodies = on; set plpgsql.extra_errors = 'shadowed_variables'"


@pytest.fixture
def strict(url: str):
    """A connection on which a function is refused for what is only a warning otherwise; nothing of it stays."""
    with psycopg.connect(server().url()) as connection:
        connection.execute(STRICT)
        yield connection
        connection.rollback()


def test_the_server_reads_every_function_to_its_end(strict):
    texts = strict.execute(DEFINITIONS, (NAMES.functions,)).fetchall()

    for (text,) in texts:
        strict.execute(text)

    assert len(texts) == len(re.findall(r"^create function", functions_text(), re.M))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("language sql as 'select colour from paceline.lane'", 'column "colour" does not exist'),
        ("language sql as 'select paceline.no_such_step(1)'", "does not exist"),
        ("language plpgsql as 'begin perform 1 frm; retrun 1; end'", "syntax error"),
        ("language plpgsql as 'declare i int; begin declare i int; begin return i; end; end'", "shadows"),
    ],
)
def test_what_is_wrong_in_a_function_is_found(strict, text, said):
    with pytest.raises(psycopg.errors.ProgrammingError, match=said):
        strict.execute(f"create function pg_temp.planted() returns int {NAMES.text(text)}")


@pytest.mark.parametrize("file", sorted([*FOLDER.glob("*.py"), *FOLDER.glob("sql/[a-z]*.sql")]), ids=lambda f: f.name)
def test_every_name_in_a_text_exists(file):
    text = "\n".join(line for line in file.read_text().splitlines() if "import" not in line and "getLogger" not in line)
    text = re.sub(r"pg_notify\('paceline\.\w+'", "", text)  # a channel is neither a table nor a function
    named = set(re.findall(r"\bpaceline\.([a-z_][a-z0-9_]*)", text))

    assert named - {*function_names(), *relations(), "stores"} == set()


def test_the_steps_make_the_tables_that_are_known(sql):
    kinds = {"r": "table", "S": "sequence"}
    there = sql.execute(
        "select c.relname, c.relkind::text from pg_class c where c.relnamespace = 'paceline'::regnamespace "
        "and c.relkind in ('r', 'S') and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i')"
    ).fetchall()

    assert relations() == {name: kinds[kind] for name, kind in there}
