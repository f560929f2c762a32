"""Waking sleepers of other processes: a datagram socket beside the file, and a rare look at the file as a fallback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

from paceline.errors import StoreError
from paceline.job import FINISHED
from paceline.stores.sqlite.connect import connect, sqlite3
from paceline.stores.sqlite.news import News, hear
from paceline.stores.sqlite.state import SqliteState
from paceline.stores.sqlite.statements import statements
from paceline.stores.sqlite.writer import Writer
from paceline.stores.steps.sleepers import Sleepers

log = logging.getLogger("paceline.sqlite")

EVERY = 0.25
"""Seconds between two looks at the file: only what no message told of is found that late."""
LONGEST_ADDRESS = 100
SPACE = statements("space")


class Ears:
    """The socket of this process, the thread that hears it, and the way to those of others."""

    def __init__(self, path: Path, state: SqliteState, writer: Writer, sleepers: Sleepers) -> None:
        self._path = path
        self._state = state
        self._writer = writer
        self._sleepers = sleepers
        self._mouth: socket.socket | None = None
        self._ear: socket.socket | None = None
        self._address = ""
        self._waits = False
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._process = 0
        self._lock = threading.Lock()
        self.heard = 0
        """The latest news that this process knows of."""
        self.missed = 0

    # hearing

    def open(self, *, waits: bool = False) -> None:
        """Begin to hear; `waits`: the ends of jobs too."""
        with self._lock:
            if self._process != os.getpid():
                self._process, self._ear, self._thread, self._waits = os.getpid(), None, None, False
                self._stop = threading.Event()
                self._listen()
                self._writer.post(_add_ear, self._address, waits, writes=True)
            elif waits and not self._waits:
                self._writer.post(_add_ear, self._address, True, writes=True)
            self._waits |= waits

    def _listen(self) -> None:
        if not hasattr(socket, "AF_UNIX"):
            self._begin()
            return
        name = f"{uuid4().hex[:12]}.ear"
        address = str(self._path.absolute()) + "-" + name
        if len(os.fsencode(address)) > LONGEST_ADDRESS:
            address = os.path.join(tempfile.gettempdir(), "paceline-" + name)
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setblocking(False)
        try:
            ear.bind(address)
        except OSError as error:
            log.info("no socket beside %s (%s): the file is looked at instead", self._path, error)
            ear.close()
        else:
            self._ear, self._address = ear, address
        self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._hear, name="paceline-ear", daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        stop, ear = self._stop, self._ear
        look = Look(self._path)
        while not stop.is_set():
            if ear is None:
                stop.wait(EVERY)
            elif select.select([ear], [], [], EVERY)[0]:
                self._take(ear)
                continue
            if not stop.is_set():
                self._look(look)
        look.close()

    def _take(self, ear: socket.socket) -> None:
        """Everything that has come, as one."""
        everyone = False
        told: dict[str, set[str]] = {"queues": set(), "empty": set(), "workers": set(), "ended": set()}
        while True:
            try:
                message = json.loads(ear.recv(65536))
            except (BlockingIOError, InterruptedError):
                break
            except (OSError, ValueError):
                return
            self.heard = max(self.heard, message.get("news", 0))
            everyone |= message.get("all", False)
            for name, found in told.items():
                found.update(message.get(name, ()))
            if message.get("much"):
                told["ended"].update(self._sleepers.waiters)
        ended = told.pop("ended") & self._sleepers.waiters.keys()
        if ended:
            self._writer.post(_look_for_ends, self._sleepers, sorted(ended), writes=False)
        hear(self._sleepers, everyone, **told)

    def _look(self, look: Look) -> None:
        """Whether something happened that nobody told of: a caller's own transaction, a lost message."""
        news = look.news(self._state.space)
        if news is not None and news > self.heard:
            self.heard = news
            self.missed += 1
            waiting = sorted(self._sleepers.waiters)
            if waiting:
                self._writer.post(_look_for_ends, self._sleepers, waiting, writes=False)
            self._sleepers.wake_all()

    # telling

    def tell(self, news: News, number: int) -> None:
        """Send what happened to the other processes."""
        self.heard = max(self.heard, number)
        others = [address for address in news.ears if address != self._address]
        if not others:
            return
        if self._mouth is None:
            self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._mouth.setblocking(False)
        message = news.message(number)
        for address in others:
            try:
                self._mouth.sendto(message, address)
            except BlockingIOError:
                # It has plenty to hear already.
                pass
            except OSError:
                news.ears.pop(address, None)
                self._writer.post(_drop_ear, address, writes=True)
                with contextlib.suppress(OSError):
                    os.unlink(address)

    async def close(self) -> None:
        """Hear no more."""
        with self._lock:
            thread, ear, address = self._thread, self._ear, self._address
            mine = self._process == os.getpid()
            self._thread = self._ear = None
            self._address, self._process, self._waits = "", 0, False
        if mine:
            self._stop.set()
            await self._close_ear(thread, ear, address)
        if self._mouth is not None:
            self._mouth.close()
            self._mouth = None

    async def _close_ear(self, thread: threading.Thread | None, ear: socket.socket | None, address: str) -> None:
        if address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
                mouth.sendto(b"{}", address)
            with contextlib.suppress(StoreError):
                await self._writer.run(_drop_ear, address, writes=True)
            with contextlib.suppress(OSError):
                os.unlink(address)
        if thread is not None:
            await asyncio.to_thread(thread.join)
        if ear is not None:
            ear.close()


class Look:
    """A connection that only looks whether the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: Any = None
        self._version = -1

    def news(self, space: int) -> int | None:
        """The number of the latest news; None when nothing was written since the last look."""
        try:
            if self._db is None:
                if not self._path.exists():
                    return None
                self._db = connect(self._path, "normal")
            (version,) = self._db.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return None
            row = self._db.execute(SPACE["news"], (space,)).fetchone()
            self._version = version
            return row[0] if row else None
        except sqlite3.Error:
            # The next look tries again; whoever needs the file is told what is wrong with it.
            return None

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _add_ear(state: SqliteState, address: str, waits: bool) -> None:
    if address:
        state.db.execute(SPACE["add_ear"], (address, state.space, waits))
        state.ears_version += 1
        state.sleepers.ears[address] = int(waits)
        state.outdated = True


def _drop_ear(state: SqliteState, address: str) -> None:
    state.db.execute(SPACE["drop_ear"], (address,))
    state.ears_version += 1
    state.sleepers.ears.pop(address, None)
    state.outdated = True


def _look_for_ends(state: SqliteState, sleepers: Sleepers, ids: list[str]) -> None:
    """Jobs that somebody here waits for have ended elsewhere."""
    now = state.now()
    for job_id in ids:
        row = state.rows.get(job_id)
        if row is None:
            sleepers.removed(job_id)
        elif row.state in FINISHED:
            sleepers.finished(job_id, row.record(now))
