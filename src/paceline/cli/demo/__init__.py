"""`paceline demo`: webhooks of four tenants to a service with a quota, once without and once with limits."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from paceline.cli.demo.compare import compare
from paceline.cli.demo.picture import picture
from paceline.cli.demo.runs import Result, Run, paced, storm
from paceline.cli.demo.view import View
from paceline.cli.running import execute
from paceline.stores import open_store
from paceline.stores.interface import Store

QUOTA, PER = 50, 7.0
"""What the service allows: so many arrivals in any so many seconds."""


@click.command()
@click.option("--jobs", default=200, show_default=True, type=click.IntRange(1), help="How many webhooks to send.")
@click.option(
    "--store", "url", metavar="URL", help="Where the jobs live; a SQLite file that goes afterwards unless given."
)
@click.option(
    "--picture",
    "path",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=Path("paceline-demo.svg"),
    show_default=True,
    help="Where the picture goes.",
)
def demo(jobs: int, url: str | None, path: Path) -> None:
    """Send webhooks to a service that allows 50 in 7 seconds: first as fast as possible, then with limits.

    The service is a real one, on this machine only. It takes about half a minute.
    """
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}", param_hint="--picture")
    try:
        path.open("a").close()  # better now than after half a minute
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint="--picture") from error
    results = execute(_both(jobs, url))
    click.echo("\n".join(compare(jobs, QUOTA, PER, *results)))
    path.write_text(picture(QUOTA, PER, *results), encoding="utf-8")
    click.echo(f"\nThe picture: {path}")


async def _both(jobs: int, url: str | None) -> list[Result]:
    results = []
    with TemporaryDirectory() as folder, View(jobs, QUOTA, PER) as view:
        # A file that goes afterwards need not survive a power cut, and a busy disk must not delay a start.
        store = open_store(url or f"sqlite:///{folder}/demo.db?durability=normal", namespace=f"demo-{os.getpid()}")
        try:
            # Opened once: the first claim of a connection is slow on a server, and the second run shall not pay for it.
            await store.open()
            for title, run in (("without limits", storm), ("with limits", paced)):
                results.append(await _run(store, title, run, jobs, view))
        finally:
            await store.close()
    return results


async def _run(store: Store, title: str, run: Run, jobs: int, view: View) -> Result:
    try:
        result = await run(store, jobs, QUOTA, PER, lambda progress: view.show(title, progress))
        view.done(title, result.progress)
        return result
    finally:
        await _tidy(store)


async def _tidy(store: Store) -> None:
    """Leave nothing behind on a server that is somebody's."""
    for queue in await store.queues():
        await store.obliterate(queue.name, True)
    for limit in await store.limits():
        await store.drop_limit(limit.name)
