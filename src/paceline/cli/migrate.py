"""`paceline migrate`: bring the schema of a PostgreSQL database to this version, or print what that takes."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from paceline.cli.running import failure
from paceline.cli.target import find_settings
from paceline.errors import ConfigError, PacelineError
from paceline.stores import open_store


@click.command()
@click.argument("url", required=False)
@click.option("--schema", default="paceline", show_default=True, help="The schema to make or to change.")
@click.option("--sql", is_flag=True, help="Print the SQL of a new schema instead of running it.")
def migrate(url: str | None, schema: str, sql: bool) -> None:
    """Make or change the schema in the database at URL. Safe to run twice, and by many at once."""
    try:
        url = url or _configured(sql)
        store: Any = open_store(url, schema=schema) if url.startswith("postgres") else open_store(url)
        if not hasattr(store, "script"):
            raise ConfigError(f"url={url!r} needs no migration: only PostgreSQL has a schema", option="url", value=url)
        if sql:
            click.echo(store.script())
            return
        changed = asyncio.run(_migrate(store))
    except PacelineError as error:
        raise failure(error) from error
    click.echo(f"schema {schema!r}: {'migrated' if changed else 'nothing to do'}")


def _configured(sql: bool) -> str:
    store = find_settings({}).get("store")
    if store is None and sql:
        return "postgresql://"  # what a new schema takes is the same everywhere
    if store is None:
        raise ConfigError("no database: give its URL, or set PACELINE_STORE", option="url")
    return store.value


async def _migrate(store: Any) -> bool:
    try:
        changed: bool = await store.migrate()
        return changed
    finally:
        await store.close()
