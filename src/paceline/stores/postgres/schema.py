"""The schema: numbered steps, applied once each by whoever comes first; functions belong to the newest step."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection, sql

from paceline.errors import ConfigError, SchemaMismatch

STEPS = ("0001_tables", "0002_functions", "0003_limits_by_task", "0004_gate")
"""What changes tables, in order; a step that was released never changes."""
FUNCTIONS = (
    "newest",
    "kinds",
    "meters",
    "classes",
    "insert",
    "finish",
    "claim",
    "turns",
    "limits",
    "gate",
    "begun",
    "manage",
    "read",
    "wake",
    "warm",
)
"""Functions and their types: dropped and made anew with every step."""
VERSION = len(STEPS)
_OFF = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_material", "jit")
PLANNER = "set plan_cache_mode = force_generic_plan set join_collapse_limit = 1 " + " ".join(
    f"set {name} = off" for name in _OFF
)
"""What a function is planned with where its text says `by index`: tables that were empty when a plan was made grow to
millions of rows, every question here has an index that answers it, and joins are written in the order to follow."""

BY_KEY = "set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off"
"""The same in short, for a function without joins of tables: every setting takes its time in every call."""


def check_schema(name: object) -> str:
    """A schema's name: a plain lower-case word, so that it reads the same everywhere."""
    if not (isinstance(name, str) and re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name)):
        raise ConfigError(
            f"schema={name!r} is wrong: expected lower-case letters, digits and underscores",
            option="schema",
            value=name,
        )
    return name


@cache
def text_of(name: str, schema: str) -> str:
    """One of our `.sql` files, written for a schema."""
    text = files("paceline.stores.postgres").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    text = text.replace("/* by index */", PLANNER).replace("/* by key */", BY_KEY)
    return text.replace("paceline.", f"{schema}.")


def script(schema: str, since: int = 0) -> str:
    """Everything that a database at a version needs, to be run by hand."""
    steps = "\n".join(text_of(step, schema) for step in STEPS[since:])
    functions = "\n".join(text_of(name, schema) for name in FUNCTIONS)
    return (
        f"create schema if not exists {schema};\nset check_function_bodies = off;\n"
        f"create table if not exists {schema}.version (number int not null);\n{steps}\n{functions}\n"
        f"delete from {schema}.version;\ninsert into {schema}.version values ({VERSION});\n"
    )


async def version_of(connection: AsyncConnection[Any], schema: str) -> int:
    """The version of the schema in the database; 0 when there is none."""
    # Not to_regclass: after waiting for somebody else's migration it may answer from what this session saw before.
    cursor = await connection.execute(
        "select from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = 'version'",
        (schema,),
    )
    if await cursor.fetchone() is None:
        return 0
    cursor = await connection.execute(sql.SQL("select max(number) from {}.version").format(sql.Identifier(schema)))
    row = await cursor.fetchone()
    return int(row[0] or 0) if row is not None else 0


async def migrate(connection: AsyncConnection[Any], schema: str) -> bool:
    """Bring the schema to this version; True when there was something to do. Many may try at once."""
    if await version_of(connection, schema) == VERSION:
        return False
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 7072))", (f"paceline {schema}",))
        found = await version_of(connection, schema)
        refuse_newer(found, schema)
        if found == VERSION:
            return False
        if found:
            await connection.execute(drop_functions(schema))
        await connection.execute(sql.SQL(script(schema, found)))
    return True


async def check(connection: AsyncConnection[Any], schema: str) -> None:
    """Refuse a schema that is not this version's."""
    found = await version_of(connection, schema)
    refuse_newer(found, schema)
    if found < VERSION:
        state = f"has version {found}" if found else "does not exist"
        raise SchemaMismatch(
            f"the schema {schema!r} {state}, and this Paceline needs version {VERSION}: run `paceline migrate`"
        )


def refuse_newer(found: int, schema: str) -> None:
    """An older program must not touch what a newer one made."""
    if found > VERSION:
        raise SchemaMismatch(
            f"the schema {schema!r} has version {found}, newer than {VERSION} of this Paceline: install a newer one"
        )


def drop_functions(schema: str) -> sql.SQL:
    """Take away the functions and types of an earlier version; tables stay."""
    return sql.SQL(
        f"""do $$ declare r record; begin
        for r in select p.oid::regprocedure as name from pg_proc p where p.pronamespace = '{schema}'::regnamespace loop
            execute 'drop function if exists ' || r.name || ' cascade'; end loop;
        for r in select t.oid::regtype as name from pg_type t join pg_class c on c.oid = t.typrelid
            where t.typnamespace = '{schema}'::regnamespace and c.relkind = 'c' loop
            execute 'drop type ' || r.name || ' cascade'; end loop;
        end $$"""
    )
