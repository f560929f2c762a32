"""Plain code adds jobs inside its own transaction: the statement runs in the caller's thread, on his connection."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from psycopg.rows import dict_row

from paceline import App, ConfigError, Group, GroupFull, Rate

from ..servers.fresh import empty_postgres, server

Caller = tuple[Any, Callable[[], None], Callable[[], None]]


@contextmanager
def sqlite3_connection(address: str) -> Iterator[Caller]:
    db = sqlite3.connect(address)
    yield db, db.commit, db.rollback
    db.close()


@contextmanager
def psycopg_connection(address: str) -> Iterator[Caller]:
    with psycopg.connect(address, row_factory=dict_row) as connection:
        yield connection, connection.commit, connection.rollback


def alchemy(kind: str) -> Callable[[str], Any]:
    @contextmanager
    def make(address: str) -> Iterator[Caller]:
        if address.startswith("postgresql"):
            engine = sqlalchemy.create_engine(f"postgresql+psycopg://postgres@/postgres?host={server().folder}")
        else:
            engine = sqlalchemy.create_engine(f"sqlite:///{address}")
        with engine.connect() if kind == "connection" else sqlalchemy.orm.Session(engine) as held:
            yield held, held.commit, held.rollback
        engine.dispose()

    return make


CALLERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "sqlite3": ("sqlite", sqlite3_connection),
    "sqlite sqlalchemy connection": ("sqlite", alchemy("connection")),
    "sqlite sqlalchemy session": ("sqlite", alchemy("session")),
    "psycopg": ("postgres", psycopg_connection),
    "postgres sqlalchemy connection": ("postgres", alchemy("connection")),
    "postgres sqlalchemy session": ("postgres", alchemy("session")),
}


def place(kind: str, folder: Path) -> tuple[str, str]:
    """The URL of the store, and the address for the caller's own connection."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'jobs.db'}?durability=normal", str(folder / "jobs.db")
    url = empty_postgres()
    return f"{url}&application_name={uuid4().hex}", url


def make(url: str) -> tuple[App, Any]:
    app = App(url)
    app.limit("pace", Rate(1000, per="1s"))

    @app.task()
    async def confirm(order: int) -> None: ...

    return app, confirm


def waiting(app: App) -> int:
    return asyncio.run(app.queue().counts())["waiting"]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("used_before", [True, False], ids=["used before", "first use"])
def test_commit_adds_and_rollback_removes(tmp_path: Path, caller: str, used_before: bool) -> None:
    kind, connect = CALLERS[caller]
    url, address = place(kind, tmp_path)
    app, confirm = make(url)
    if used_before or kind == "sqlite":
        confirm.enqueue_sync(0)  # a file must exist before others can open it
    had = waiting(app) if used_before else int(kind == "sqlite")
    with connect(address) as (within, commit, rollback):
        task = confirm.using(within=within)
        task.enqueue_sync(1)
        rollback()
        task.enqueue_sync(2)
        task.enqueue_sync(3)
        other: list[int] = []
        thread = threading.Thread(target=lambda: other.append(waiting(app)))
        thread.start()
        thread.join()
        commit()

    assert (other, waiting(app)) == ([had], had + 2)
    asyncio.run(app.close())


@pytest.mark.parametrize("caller", ["sqlite3", "psycopg"])
def test_a_refusal_leaves_the_callers_transaction_as_it_was(tmp_path: Path, caller: str) -> None:
    kind, connect = CALLERS[caller]
    url, address = place(kind, tmp_path)
    app, confirm = make(url)
    confirm.enqueue_sync(0)
    with connect(address) as (within, commit, _):
        full = confirm.using(within=within, group=Group("tenant", max_size=1))
        full.enqueue_sync(1)
        if kind == "sqlite":
            with pytest.raises(GroupFull):
                full.enqueue_sync(2)
            commit()
            assert waiting(app) == 2
        else:
            with pytest.raises(GroupFull):
                full.enqueue_sync(2)
    asyncio.run(app.close())


async def test_inside_an_event_loop_it_is_awaited_instead(tmp_path: Path) -> None:
    url, address = place("sqlite", tmp_path)
    app, confirm = make(url)
    async with app:
        with sqlite3_connection(address) as (within, commit, _):
            with pytest.raises(ConfigError, match="await enqueue"):
                confirm.using(within=within).enqueue_sync(1)
            await confirm.using(within=within).enqueue(1)
            commit()
        assert (await app.queue().counts())["waiting"] == 1


class AsyncLike:
    """As psycopg's AsyncConnection, AsyncSession and aiosqlite look."""

    in_transaction = False

    async def commit(self) -> None: ...
    async def cursor(self) -> None: ...


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_is_no_connection_of_this_thread_is_refused_in_words(tmp_path: Path, kind: str) -> None:
    url, address = place(kind, tmp_path)
    app, confirm = make(url)
    confirm.enqueue_sync(0)

    with pytest.raises(ConfigError, match="belongs to its event loop"):
        confirm.using(within=AsyncLike()).enqueue_sync(1)
    with pytest.raises(ConfigError, match=r"within=.*is wrong"):
        confirm.using(within=object()).enqueue_sync(1)
    if kind == "sqlite":
        with sqlite3_connection(address) as (within, _, _):
            problems: list[Exception] = []

            def elsewhere() -> None:
                try:
                    confirm.using(within=within).enqueue_sync(1)
                except Exception as error:
                    problems.append(error)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        assert isinstance(problems[0], ConfigError) and "thread" in str(problems[0])
    assert waiting(app) == 1
    asyncio.run(app.close())


DJANGO = """
import asyncio, sys
import django
from django.conf import settings
url, engine, name, host = sys.argv[1:]
settings.configure(USE_TZ=True, DATABASES={"default": {"ENGINE": f"django.db.backends.{engine}", "NAME": name,
    "HOST": host, "USER": "postgres" if host else ""}})
django.setup()
from django.db import connection, transaction
from paceline import App, Group, GroupFull

app = App(url)

@app.task()
async def confirm(order: int) -> None: ...

def waiting():
    return asyncio.run(app.queue().counts())["waiting"]

confirm.enqueue_sync(0)
with transaction.atomic():
    confirm.using(within=connection).enqueue_sync(1)
    assert waiting() == 1
assert waiting() == 2
try:
    with transaction.atomic():
        confirm.using(within=connection).enqueue_sync(2)
        raise KeyError
except KeyError:
    pass
assert waiting() == 2
with transaction.atomic():
    full = confirm.using(within=connection, group=Group("tenant", max_size=1))
    full.enqueue_sync(3)
    try:
        with transaction.atomic():
            full.enqueue_sync(4)
    except GroupFull:
        pass
assert waiting() == 3
confirm.using(within=connection).enqueue_sync(5)  # no transaction: as if it had one of its own
assert waiting() == 4, waiting()
connection.close()
confirm.using(within=connection).enqueue_sync(6)
assert waiting() == 5
asyncio.run(app.close())
print("good")
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_djangos_connection_works_inside_atomic(tmp_path: Path, kind: str) -> None:
    url, address = place(kind, tmp_path)
    where = ("sqlite3", address, "") if kind == "sqlite" else ("postgresql", "postgres", str(server().folder))

    done = subprocess.run(
        [sys.executable, "-c", DJANGO, url, *where], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == ("good\n", "")
