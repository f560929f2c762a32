"""`paceline migrate`: bring the schema of a PostgreSQL database to this version, or print what that takes."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from paceline.cli.running import failure
from paceline.cli.target import find_settings, find_target, store_options
from paceline.errors import ConfigError, PacelineError
from paceline.stores import open_store
from paceline.stores.address import without_password


@click.command()
@click.argument("url", required=False)
@store_options
@click.option("--schema", help="The schema to make or to change, instead of the store's own ('paceline').")
@click.option("--sql", is_flag=True, help="Print the SQL of a new schema instead of running it.")
@click.option("--from", "since", type=click.IntRange(0), help="With --sql: the format that the database has now.")
def migrate(url: str | None, schema: str | None, sql: bool, since: int | None, **given: str | None) -> None:
    """Make or change the schema in the database at URL (or --store, or the app's). Safe to run twice, and by many."""
    try:
        if url is not None and given["store"] is not None:
            raise ConfigError("a URL and --store are both given: expected one of them", option="store")
        if since is not None and not sql:
            raise ConfigError(f"from={since} is wrong without --sql: a database knows its format", option="from")
        store = _store({**given, "store": url or given["store"]}, schema, sql)
        if sql:
            click.echo(store.script(since or 0))
            return
        changed = asyncio.run(_migrate(store))
    except PacelineError as error:
        raise failure(error) from error
    click.echo(f"schema {store.schema!r}: {'migrated' if changed else 'nothing to do'}")


def _store(given: dict[str, str | None], schema: str | None, sql: bool) -> Any:
    settings = find_settings(given)
    if sql and not settings.keys() & {"app", "store"}:
        # What a new schema takes is the same everywhere.
        return open_store("postgresql://", schema=schema or "paceline")
    target = find_target(given, makes=True)
    if not hasattr(target.store, "script"):
        shown = without_password(target.store.address)
        raise ConfigError(f"store={shown!r} needs no migration: only PostgreSQL has a schema", option="store")
    if schema is None:
        return target.store
    if target.app is not None:
        raise ConfigError(f"schema={schema!r} is wrong beside an app: its store names the schema", option="schema")
    return open_store(settings["store"].value, schema=schema)


async def _migrate(store: Any) -> bool:
    try:
        changed: bool = await store.migrate()
        return changed
    finally:
        await store.close()
