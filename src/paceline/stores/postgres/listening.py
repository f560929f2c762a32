"""One LISTEN for each process and namespace, in a thread of its own: what other processes say wakes our sleepers."""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from typing import Any

import psycopg
from psycopg.raw_cursor import RawCursor

from paceline.stores.postgres.connections import Connections
from paceline.stores.postgres.ears import Ears

log = logging.getLogger("paceline.postgres")

SAID_FOR = 90_000_000
"""A process that says nothing for so many microseconds is taken not to listen any more."""
SAY_EVERY = 30.0
LOOK_EVERY = 1.0
"""Seconds between looks where nobody can tell us: without LISTEN, or while an older transaction may not know of us."""
PATIENCE = 0.5
"""Seconds until the thread notices that it should end."""


class Listening:
    """Runs while somebody sleeps; reconnects by itself, and lets everybody look again when it was away."""

    def __init__(self, connections: Connections, schema: str, space: int, ears: Ears) -> None:
        self._connections = connections
        self._schema = schema
        self._space = space
        self._ears = ears
        self._process = secrets.token_hex(8)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-ears", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Say goodbye and end; returns at once."""
        self._stop.set()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def _run(self) -> None:
        pause = 0.1
        while not self._stop.is_set():
            try:
                with self._connections.connect_plainly() as connection:
                    pause = 0.1
                    self._listen(connection)
            except (psycopg.Error, OSError) as error:
                if self._stop.is_set():
                    return
                log.warning("nobody can be woken by PostgreSQL now: %s; trying again", error)
                self._ears.wake_all()
                self._stop.wait(pause * random.uniform(0.5, 1))
                pause = min(pause * 2, 2.0)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f'listen "{self._schema}.ears"')
        known = self._say(connection)
        said_at, wants_empty = time.monotonic(), self._ears.wants_empty
        # What happened before we listened can only be found by looking.
        self._ears.wake_all()
        unseen, looked_at = True, time.monotonic()
        while not self._stop.is_set():
            for notice in connection.notifies(timeout=PATIENCE, stop_after=1):
                self._hear(notice.payload)
            now = time.monotonic()
            if unseen and now - looked_at > LOOK_EVERY:
                looked_at = now
                unseen = not self._all_know(connection, known)
                self._ears.wake_all()
            if now - said_at > SAY_EVERY or wants_empty != self._ears.wants_empty:
                said_at, wants_empty = now, self._ears.wants_empty
                self._say(connection)
        self._ask(connection, "select paceline.stop_listening($1::int, $2::text)", self._space, self._process)

    def _say(self, connection: psycopg.Connection[Any]) -> int:
        text = "select paceline.listen_on($1::int, $2::text, $3::boolean, $4::bigint)"
        return int(self._ask(connection, text, self._space, self._process, self._ears.wants_empty, SAID_FOR))

    def _all_know(self, connection: psycopg.Connection[Any], known: int) -> bool:
        """True when every transaction that began before we listened is over."""
        return int(self._ask(connection, "select pg_snapshot_xmin(pg_current_snapshot())::text")) > known

    def _ask(self, connection: psycopg.Connection[Any], text: str, *values: Any) -> Any:
        with RawCursor(connection) as cursor:
            cursor.execute(text.replace("paceline.", f"{self._schema}."), values)
            row = cursor.fetchone()
            return None if row is None else row[0]

    def _hear(self, payload: str) -> None:
        space, pid, *words = payload.split("\n")
        if int(space) == self._space and int(pid) not in self._connections.pids:
            self._ears.hear(words)


class Polling:
    """Instead of LISTEN, where a transaction pooler is in between: everybody looks once a second."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-poll", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; returns at once."""
        self._stop.set()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            self._ears.wake_all()
