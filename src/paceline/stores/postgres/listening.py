"""One LISTEN for each process and namespace, in a thread of its own: what other processes say wakes our sleepers."""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import select
import socket
import threading
import time
from typing import Any

import psycopg
from psycopg.raw_cursor import RawCursor

from paceline.stores.postgres.connections import Connections
from paceline.stores.postgres.ears import Ears
from paceline.stores.postgres.names import Names

log = logging.getLogger("paceline.postgres")

SAID_FOR = 180_000_000
"""A process that says nothing for so many microseconds is taken not to listen any more."""
SAY_EVERY = 60.0
LOOK_EVERY = 1.0
"""Seconds between looks where nobody can tell us: without LISTEN, or while an older transaction may not know of us."""
LOOK_SOON = 0.03
"""The first look: an adder who did not know of us has usually committed by then."""
AWAKE_FOR = 0.2
"""Seconds that nobody sleeps before the server hears of it: who is busy only for a moment stays known as a sleeper."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two tries to connect: twice as many each time."""
PATIENCE = 0.5
"""Seconds until the thread notices that nobody sleeps."""


class Listening:
    """Runs while somebody sleeps; reconnects by itself, and lets everybody look again when it was away."""

    def __init__(self, connections: Connections, address: str, names: Names, space: int, ears: Ears) -> None:
        self._connections = connections
        self._address = address
        self._names = names
        self._space = space
        self._ears = ears
        self._process = secrets.token_hex(8)
        self._stop = threading.Event()
        self._asleep = False
        """What was said last: adders tell nobody when all who listen said that nobody sleeps."""
        self._wants_empty = False
        """What was said last: nobody is notified of an empty queue when nobody said that it wants to know."""
        self._lost = False
        """True while there is no connection: said once, however often it is tried."""
        self._pause = FIRST_PAUSE
        self._nudged, self._nudge = socket.socketpair()
        self._nudge.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="paceline-ears", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Say goodbye and end; returns at once."""
        self._stop.set()
        self._wake_thread()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def fall_asleep(self) -> None:
        """Somebody begins to sleep. If the server does not know, it hears of it now; then everybody looks once more."""
        if not self._asleep or (self._ears.wants_empty and not self._wants_empty):
            self._wake_thread()

    def _wake_thread(self) -> None:
        with contextlib.suppress(OSError):
            self._nudge.send(b".")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._connections.connect_plainly() as connection:
                    self._listen(connection)
            except Exception as error:
                # Whatever it was: without this thread nobody here would be woken any more.
                if self._stop.is_set():
                    break
                self._retry(error)
        self._nudge.close()
        self._nudged.close()

    def _retry(self, error: Exception) -> None:
        """Wait a little longer each time; everybody looks meanwhile."""
        if not self._lost:
            self._lost = True
            reason = " ".join(str(error).split())
            log.warning("lost the notification connection to %s (%s); retrying", self._address, reason)
        self._ears.wake_all()
        self._stop.wait(self._pause * random.uniform(0.5, 1))
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _found(self) -> None:
        """The server notifies us, perhaps after it did not."""
        self._pause = FIRST_PAUSE
        if self._lost:
            self._lost = False
            log.info("the notification connection to %s is back", self._address)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f'listen "{self._names.tables}.wakeups"')
        known = self._say(connection, asleep=True)
        self._found()
        said_at = time.monotonic()
        # What happened before we listened can only be found by looking; what others do who do not know of us yet, too.
        self._ears.wake_all()
        look_at: float | None = said_at + LOOK_SOON
        awake_since: float | None = None
        while not self._stop.is_set():
            now = time.monotonic()
            patience = PATIENCE if look_at is None else max(min(PATIENCE, look_at - now), 0)
            ready, _, _ = select.select([connection.fileno(), self._nudged], [], [], patience)
            if self._nudged in ready:
                self._nudged.recv(4096)
            # Not `connection.notifies()`, which is slower than all the rest of waking somebody.
            connection.pgconn.consume_input()
            while (notice := connection.pgconn.notifies()) is not None:
                self._hear(notice.extra)
            now, asleep, wants_empty = time.monotonic(), self._ears.asleep, self._ears.wants_empty
            if (asleep and not self._asleep) or (wants_empty and not self._wants_empty):
                known, said_at, look_at = self._say(connection, asleep=True), now, now + LOOK_SOON
                self._ears.wake_all()
            elif look_at is not None and now >= look_at:
                look_at = None if self._all_know(connection, known) else now + LOOK_EVERY
                self._ears.wake_all()
            awake_since = None if asleep else awake_since or now
            if self._asleep and awake_since is not None and now - awake_since > AWAKE_FOR and self._may_wake():
                # Busy workers need not be told of anything new, and adders save the telling.
                self._say(connection, asleep=False)
                said_at, look_at = now, None
            if now - said_at > SAY_EVERY or (self._wants_empty and not wants_empty):
                said_at, unseen = now, self._say(connection, asleep=self._asleep)
                if unseen is not None and self._asleep:
                    # This process stood still for so long that nobody knew of it any more.
                    known, look_at = unseen, now + LOOK_SOON
                    self._ears.wake_all()
        self._ask(connection, "select paceline.stop_listening($1::int, $2::text)", self._space, self._process)

    def _say(self, connection: psycopg.Connection[Any], asleep: bool) -> int | None:
        """Gives the first transaction that surely sees it, or None when all others knew it before."""
        text = "select paceline.listen_on($1::int, $2::text, $3::boolean, $4::boolean, $5::bigint)"
        self._wants_empty = self._ears.wants_empty
        unseen = self._ask(connection, text, self._space, self._process, self._wants_empty, asleep, SAID_FOR)
        self._asleep = asleep
        return None if unseen is None else int(unseen)

    def _may_wake(self) -> bool:
        """True when nobody sleeps, and whoever begins to from now on nudges us."""
        self._asleep = False
        self._asleep = self._ears.asleep
        return not self._asleep

    def _all_know(self, connection: psycopg.Connection[Any], known: int | None) -> bool:
        """True when every transaction that began before we listened is over."""
        oldest = "select pg_snapshot_xmin(pg_current_snapshot())::text"
        return known is None or int(self._ask(connection, oldest)) > known

    def _ask(self, connection: psycopg.Connection[Any], text: str, *values: Any) -> Any:
        with RawCursor(connection) as cursor:
            cursor.execute(self._names.text(text), values)
            row = cursor.fetchone()
            return None if row is None else row[0]

    def _hear(self, payload: bytes) -> None:
        try:
            space, pid, *words = payload.decode().split("\n")
            concerns_us = int(space) == self._space and int(pid) not in self._connections.pids
        except ValueError:
            # Whoever sent this is not one of us.
            return
        if concerns_us:
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

    def fall_asleep(self) -> None:
        """Nobody is told anything here."""

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            self._ears.wake_all()
