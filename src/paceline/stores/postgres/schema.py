"""The schema: numbered steps for the tables, applied once each; the functions of every release apart from the others.

Everything is one transaction under one lock, so many may try at once, and one that is killed has changed nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from paceline.errors import SchemaMismatch, StoreError
from paceline.stores.postgres.faults import MAY_NOT
from paceline.stores.postgres.names import (
    FORMAT,
    OLDEST,
    STEPS,
    Names,
    fingerprint,
    function_names,
    functions_text,
    relations,
    step_text,
)

TRIES = 5
"""So often a migration is tried when the transactions of others are in its way."""
PATIENCE = "10s"
"""How long it waits for transactions that use the tables; meanwhile those that come after wait too."""
KEPT_FOR = "30 days"
"""Functions that nobody used for so long are removed, unless they are those of the release before."""
SEEN_EVERY = 3600
"""Seconds after which a program says again that it uses its functions."""

COLUMNS = """select array(select a.attname::text from pg_attribute a
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum)
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = 'version'"""
"""Not to_regclass: after waiting for another migration it may answer from what this session saw before."""

THERE = """select (select count(*) from pg_proc p where p.pronamespace = n.oid and p.proname = any (%s))
    + (select count(*) from pg_class c where c.relnamespace = n.oid and c.relname = any (%s) and c.relkind = 'c')
from pg_namespace n where n.nspname = %s"""

SEEN = """update paceline.installed set seen_at = now()
where fingerprint = %s and seen_at < now() - make_interval(secs => %s)"""

LOOK_AT_ALL = """update paceline.queue_state set folded = null, folded_by = null, folding = null, folding_by = null,
    folding_xid = null, folding_id = null
where greatest(pg_snapshot_xmax(folded), pg_snapshot_xmax(folding)) > pg_snapshot_xmax(pg_current_snapshot())"""
"""A queue that was folded by transactions that are yet to come: a dump was put back on another server, which counts
from somewhere else. What comes there would be taken for folded."""

GRANTS = """do $do$
declare
    v_grant text;
begin
    -- Who was granted what there was may use what came.
    for v_grant in
        select format('grant %s on %s TABLES.%I to %s', string_agg(a.privilege_type, ', '),
                case c.relkind when 'S' then 'sequence' else 'table' end, c.relname,
                case when a.grantee = 0 then 'public' else a.grantee::regrole::text end)
            from pg_class c
            join pg_class m on m.oid =
                case c.relkind when 'S' then 'paceline.job_seq' else 'paceline.job' end::regclass,
            aclexplode(m.relacl) as a
            where c.relnamespace = 'TABLES'::regnamespace and c.relname = any ('{CAME}') and a.grantee <> m.relowner
            group by c.relkind, c.relname, a.grantee
    loop
        execute v_grant;
    end loop;
end $do$;"""

REMOVE = """do $do$
declare
    v_one record;
    v_names text;
begin
    for v_one in
        select i.fingerprint, 'TABLES_f_' || i.fingerprint as place, i.format < OLDEST as must from paceline.installed i
            where i.fingerprint <> 'MINE' and (i.format < OLDEST or i.seen_at < now() - interval 'KEPT_FOR'
                and i.fingerprint <> (select fingerprint from paceline.installed
                    where fingerprint <> 'MINE' order by installed_at desc, fingerprint limit 1))
        union all select 'MINE', 'TABLES_f_MINE', true
    loop
        begin
            -- Never with cascade: what depends on them is the user's.
            select string_agg(p.oid::regprocedure::text, ', ') into v_names from pg_proc p
                where p.pronamespace = to_regnamespace(v_one.place);
            if v_names is not null then execute 'drop routine ' || v_names; end if;
            select string_agg(c.reltype::regtype::text, ', ') into v_names from pg_class c
                where c.relnamespace = to_regnamespace(v_one.place) and c.relkind = 'c';
            if v_names is not null then execute 'drop type ' || v_names; end if;
            execute format('drop schema if exists %I', v_one.place);
            delete from paceline.installed where fingerprint = v_one.fingerprint;
        exception when dependent_objects_still_exist then
            if v_one.must then raise; end if;
        end;
    end loop;
end $do$;"""
"""Removes functions that no longer work on the tables, those that nobody uses, and a rest of this release's own."""


@dataclass(frozen=True)
class State:
    """What was found in the database."""

    number: int = 0
    """The format of the tables; 0: there are none."""
    oldest: int = 0
    """The earliest format whose functions work on them."""
    functions: int = 0
    """So many functions and types of this release are there."""

    @property
    def usable(self) -> bool:
        """True when this release can work with it as it is."""
        return self.oldest <= FORMAT <= self.number and self.functions == len(function_names())


async def state_of(connection: AsyncConnection[Any], names: Names) -> State:
    """What the database has for us."""
    row = await _row(connection, COLUMNS, names.tables)
    if row is None:
        return State()
    (columns,) = row
    if columns not in (["number"], ["number", "oldest"]):
        raise SchemaMismatch(
            f"the schema {names.tables!r} has a table `version` that is not Paceline's: name another schema with "
            "schema=…; nothing was changed"
        )
    oldest = "coalesce(max(oldest), max(number))" if len(columns) > 1 else "max(number)"
    row = await _row(connection, f"select coalesce(max(number), 0), coalesce({oldest}, 0) from {names.tables}.version")
    number, oldest = row or (0, 0)
    ours = list(function_names())
    row = await _row(connection, THERE, ours, ours, names.functions)
    return State(number, oldest, row[0] if row else 0)


async def migrate(connection: AsyncConnection[Any], names: Names) -> bool:
    """Bring tables and functions to this release; True when there was something to do. Many may try at once."""
    if (await state_of(connection, names)).usable:
        return False
    tries = 0
    while True:
        tries += 1
        try:
            return await _migrate_once(connection, names)
        except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable) as error:
            if tries == TRIES:
                raise StoreError(
                    f"the tables of schema {names.tables!r} could not be locked: end the programs of the release "
                    "before and the transactions that are open (pg_stat_activity shows them), then migrate again; "
                    "nothing was changed"
                ) from error
            await asyncio.sleep(random.uniform(0.1, 0.5))


async def _migrate_once(connection: AsyncConnection[Any], names: Names) -> bool:
    async with connection.transaction():
        # A migration that waited for the lock must see what was committed meanwhile.
        await connection.execute("set transaction isolation level read committed")
        await connection.execute(
            "select pg_advisory_xact_lock(hashtextextended(%s, 7072))", (f"paceline {names.tables}",)
        )
        state = await state_of(connection, names)
        refuse_newer(state, names)
        if state.usable:
            return False
        await _require_right_to_create(connection)
        text = sql.SQL(changes(names, state.number))
        try:
            await connection.execute(text)
        except psycopg.Error as error:
            if (raised := _refusal(error, names)) is None:
                raise
            raise raised from error
    return True


def _refusal(error: psycopg.Error, names: Names) -> StoreError | None:
    said = error.diag.message_primary
    match error:
        case psycopg.errors.DuplicateTable() | psycopg.errors.DuplicateObject():
            return SchemaMismatch(
                f"the schema {names.tables!r} has something of its own with the name of a table of Paceline ({said}): "
                "name another one with schema=…; nothing was changed"
            )
        case psycopg.errors.DependentObjectsStillExist():
            return StoreError(
                f"something of yours depends on functions that are replaced ({error.diag.message_detail}): drop it, "
                "migrate, and make it again; nothing was changed"
            )
        case psycopg.errors.InsufficientPrivilege():
            return StoreError(
                f"the database role may not change the schema {names.tables!r} ({said}): migrate as the role that made "
                "it; nothing was changed"
            )
    return None


async def _require_right_to_create(connection: AsyncConnection[Any]) -> None:
    query = "select has_database_privilege(current_database(), 'create'), current_user::text, current_database()::text"
    may, role, database = await _row(connection, query) or (False, "?", "?")
    if not may:
        raise StoreError(
            f"the role {role!r} may not create schemas in the database {database!r}: `grant create on database "
            f"{database} to {role}`, or run `paceline migrate` as a role that may; nothing was changed"
        )


def changes(names: Names, since: int = 0) -> str:
    """The SQL that a database with tables of a format needs (0: with none), for one transaction."""
    values = {"TABLES": names.tables, "MINE": fingerprint(), "OLDEST": str(OLDEST), "KEPT_FOR": KEPT_FOR}
    texts = [*_table_changes(names, since), _filled(REMOVE, names, values)]
    texts += [
        "set local check_function_bodies = off;",
        f"create schema {names.functions};",
        # They run with the rights of who calls them: to be allowed to call them gives nobody anything.
        f"grant usage on schema {names.functions} to public;",
        names.text(functions_text()),
        f"insert into {names.tables}.installed (fingerprint, release, format) "
        f"values ('{fingerprint()}', '{_release()}', {FORMAT});",
    ]
    return "\n".join(texts)


def _release() -> str:
    try:
        return version("paceline")
    except PackageNotFoundError:
        return "from sources"


def _table_changes(names: Names, since: int) -> list[str]:
    tables = names.tables
    if since >= FORMAT:
        return []
    before = relations(STEPS[:since])
    came = [name for name in relations(STEPS) if name not in before]
    if not since:
        start = [
            f"create schema if not exists {tables};",
            f"create table if not exists {tables}.version (number int not null);",
        ]
    else:
        # What earlier functions do ends before; what they begin later finds none of them.
        used = [name for name, kind in before.items() if kind == "table" and name != "version"]
        every = ", ".join(f"{tables}.{name}" for name in used)
        start = [f"set local lock_timeout = '{PATIENCE}';", f"lock table {every} in access exclusive mode;"]
    end = [
        f"delete from {tables}.version;",
        f"insert into {tables}.version (number, oldest) values ({FORMAT}, {OLDEST});",
    ]
    if since and came:
        end.append(_filled(GRANTS, names, {"TABLES": tables, "CAME": ",".join(came)}))
    return [*start, *(step_text(step, tables) for step in STEPS[since:]), *end]


def _filled(text: str, names: Names, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return names.text(text)


def script(schema: str, since: int = 0) -> str:
    """The same to be run by hand."""
    if since > FORMAT:
        raise SchemaMismatch(f"the format {since} is newer than {FORMAT} of this Paceline: take that release's SQL")
    return f"begin;\n{changes(Names(schema), since)}\ncommit;\n"


async def check(connection: AsyncConnection[Any], names: Names) -> None:
    """Refuse what this release cannot work with as it is."""
    state = await state_of(connection, names)
    refuse_newer(state, names)
    if state.usable:
        return
    if not state.number:
        found = "does not exist"
    elif state.number < FORMAT:
        found = f"has format {state.number}, and this Paceline needs {FORMAT}"
    else:
        missing = len(function_names()) - state.functions
        found = f"lacks {missing} of the {len(function_names())} functions of this Paceline ({names.functions})"
    raise SchemaMismatch(f"the schema {names.tables!r} {found}: run `paceline migrate`")


def refuse_newer(state: State, names: Names) -> None:
    """An older program must not touch what only newer functions understand."""
    if state.oldest > FORMAT:
        raise SchemaMismatch(
            f"the schema {names.tables!r} has format {state.number}, made by a newer Paceline; this one knows "
            f"{FORMAT}: install that release here, and restart"
        )


async def seen(connection: AsyncConnection[Any], names: Names) -> None:
    """Note that this release's functions are used, at most once an hour."""
    with contextlib.suppress(*MAY_NOT):
        await connection.execute(sql.SQL(names.text(SEEN)), (fingerprint(), SEEN_EVERY))


async def look_at_all(connection: AsyncConnection[Any], names: Names) -> None:
    """Take in all that came to queues whose latest look was on another server."""
    with contextlib.suppress(*MAY_NOT):
        await connection.execute(sql.SQL(names.text(LOOK_AT_ALL)))


async def _row(connection: AsyncConnection[Any], query: str, *values: object) -> tuple[Any, ...] | None:
    cursor = await connection.execute(sql.SQL(query), values)
    row: tuple[Any, ...] | None = await cursor.fetchone()
    return row
