"""`paceline migrate`: bring the schema of a PostgreSQL database to this version, or print what that takes."""

from __future__ import annotations

import asyncio

import click

from paceline.errors import PacelineError
from paceline.stores import open_store


@click.command()
@click.argument("url")
@click.option("--schema", default="paceline", show_default=True, help="The schema to make or to change.")
@click.option("--sql", is_flag=True, help="Print the SQL of a new schema instead of running it.")
def migrate(url: str, schema: str, sql: bool) -> None:
    """Make or change the schema in the database at URL. Safe to run twice, and by many at once."""
    try:
        store = open_store(url, schema=schema)
        script = getattr(store, "script", None)
        if script is None:
            raise click.UsageError(f"{url!r} needs no migration: only PostgreSQL has a schema")
        if sql:
            click.echo(script())
            return
        changed = asyncio.run(_migrate(store))
    except PacelineError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"schema {schema!r}: {'migrated' if changed else 'nothing to do'}")


async def _migrate(store: object) -> bool:
    try:
        changed: bool = await store.migrate()  # type: ignore[attr-defined]  # a store that has a script has this too
        return changed
    finally:
        await store.close()  # type: ignore[attr-defined]  # every store has
