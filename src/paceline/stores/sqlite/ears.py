"""Waking sleepers of other processes: a datagram socket beside the file, and a rare look at the file as a fallback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import selectors
import socket
import sqlite3
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from paceline.errors import JobNotFound, StoreError
from paceline.stores.sqlite.connect import connect
from paceline.stores.sqlite.news import Message, News, hear
from paceline.stores.sqlite.reading import outcome
from paceline.stores.sqlite.statements import statements
from paceline.stores.sqlite.unit import Unit
from paceline.stores.sqlite.writer import GONE, Writer, identity
from paceline.stores.steps.sleepers import Sleepers

log = logging.getLogger("paceline.sqlite")

EVERY = 0.25
"""Seconds between two looks at the file: only what no message told of is found that late."""
LONGEST_ADDRESS = 100
SPACE = statements("space")


class Ears:
    """The socket of this process, the thread that hears it, and the way to those of others."""

    def __init__(self, path: Path, unit: Unit, writer: Writer, sleepers: Sleepers) -> None:
        self._path = path
        self._unit = unit
        self._writer = writer
        self._sleepers = sleepers
        self._mouth: socket.socket | None = None
        self.heard = 0
        """The latest news that this process knows of."""
        self.missed = 0
        self.forked()

    def forked(self) -> None:
        """Begin without an ear; a child process leaves its parent's alone."""
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._file = Look(self._path, None)
        self._ear: socket.socket | None = None
        self._address = ""
        self._added = ""
        """The address that was put on the list last."""
        self._waits = False
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def before_fork(self) -> None:
        """Let go of the file, as the writer does."""
        self._looking.acquire()
        self._file.close()

    def after_fork(self) -> None:
        self._looking.release()

    # hearing

    def open(self, *, waits: bool = False) -> None:
        """Begin to hear; `waits`: the ends of jobs too."""
        with self._lock:
            new = self._thread is None
            if new:
                self._stop = threading.Event()
                self._listen()
                self._thread = threading.Thread(target=self._hear, name="paceline-ear", daemon=True)
                self._thread.start()
            if new or (waits and not self._waits):
                self._waits |= waits
                self._writer.post(self._add, self._address, self._waits, writes=True)

    def _add(self, unit: Unit, address: str, waits: bool) -> None:
        self.heard = max(self.heard, unit.news_number)
        self._added = address
        if address:
            unit.db.execute(SPACE["add_ear"], (address, unit.space, waits))
            unit.ears_version += 1
            unit.news.set_ears({**unit.news.ears, address: int(waits)})
            unit.written = True

    def _listen(self) -> None:
        if not hasattr(socket, "AF_UNIX"):
            return
        name = f"{uuid4().hex[:12]}.ear"
        address = f"{self._path}-{name}"
        if len(os.fsencode(address)) > LONGEST_ADDRESS:
            address = os.path.join(tempfile.gettempdir(), f"paceline-{name}")
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            ear.bind(address)
        except OSError as error:
            log.info("no socket beside %s (%s): the file is looked at instead", self._path, error)
            ear.close()
        else:
            ear.setblocking(False)
            self._ear, self._address = ear, address
            # A program that ends without closing leaves no socket behind.
            weakref.finalize(ear, _unlink, address, os.getpid())

    def _hear(self) -> None:
        stop, ear = self._stop, self._ear
        self._file = look = Look(self._path, identity(self._path))
        waiting = _selector(ear)
        while not stop.is_set():
            try:
                told = _everything(ear) if ear is not None and waiting.select(EVERY) else []
                if ear is None:
                    stop.wait(EVERY)
                if stop.is_set():
                    break
                if told:
                    self._take(told)
                else:
                    self._look(look)
                    if self._ear is not ear:
                        waiting.close()
                        ear = self._ear
                        waiting = _selector(ear)
            except Exception as error:
                log.warning("a message about %s could not be understood: %s", self._path, error)
        with self._looking:
            look.close()
        waiting.close()

    def _take(self, messages: list[bytes]) -> None:
        everyone = False
        told: dict[str, set[str]] = {"queues": set(), "empty": set(), "workers": set(), "ended": set()}
        for text in messages:
            try:
                message = msgspec.json.decode(text, type=Message)
            except msgspec.MsgspecError:
                # Whoever sent this is not one of us.
                continue
            self.heard = max(self.heard, message.news)
            everyone |= message.all
            for name, found in told.items():
                found.update(getattr(message, name))
            if message.much:
                told["ended"].update(self._sleepers.waiters)
        ended = told.pop("ended") & self._sleepers.waiters.keys()
        if ended:
            self._writer.post(_look_for_ends, self._sleepers, sorted(ended), writes=False)
        hear(self._sleepers, everyone, **told)

    def _look(self, look: Look) -> None:
        """Whether something happened that nobody told of: a caller's own transaction, a lost message, another file."""
        with self._looking:
            found = look.found(self._unit.space, self._address)
        if not found.replaced and found.news > self.heard:
            # It may be this process's own, written but not yet told.
            self._writer.settle()
        untold = not found.replaced and found.news > self.heard
        dropped = not found.listed and self._added == self._address
        if found.replaced:
            self.heard = 0
            self._writer.post(self._add, self._address, self._waits, writes=True)
        elif dropped:
            self._listen_again()
        if untold:
            self.missed += 1
            self.heard = found.news
        # Ends are news only where somebody who is listed waits for them.
        if untold or found.replaced or dropped or (found.changed and not self._address):
            waiting = sorted(self._sleepers.waiters)
            if waiting:
                self._writer.post(_look_for_ends, self._sleepers, waiting, writes=False)
        if untold or found.replaced or dropped:
            self._sleepers.wake_all()

    def _listen_again(self) -> None:
        """Somebody could not reach our socket and took it off the list: one whose file is gone is made anew."""
        with self._lock:
            if self._stop.is_set() or self._ear is None:
                return
            if not os.path.exists(self._address):
                self._ear.close()
                self._ear, self._address = None, ""
                self._listen()
            self._writer.post(self._add, self._address, self._waits, writes=True)

    # telling

    def tell(self, news: News, number: int) -> None:
        """Send what happened to the other processes."""
        self.heard = max(self.heard, number)
        others = [address for address in news.ears if address != self._address]
        if not others or not hasattr(socket, "AF_UNIX"):
            return
        if self._mouth is None:
            self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._mouth.setblocking(False)
        message = news.message(number)
        for address in others:
            try:
                self._mouth.sendto(message, address)
            except (FileNotFoundError, ConnectionRefusedError):
                # Nobody is there any more.
                news.ears.pop(address, None)
                self._writer.post(_drop_ear, address, writes=True)
                with contextlib.suppress(OSError):
                    os.unlink(address)
            except OSError:
                # It has plenty to hear already, or we may not write to it: others may.
                pass

    async def close(self) -> None:
        """Hear no more."""
        with self._lock:
            thread, ear, address, stop = self._thread, self._ear, self._address, self._stop
            self._thread = self._ear = None
            self._address, self._waits = "", False
        stop.set()
        if address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
                # Whoever is full of messages wakes up by itself, or has ended already: then nobody would make room.
                mouth.setblocking(False)
                mouth.sendto(b"{}", address)
            with contextlib.suppress(StoreError):
                await self._writer.run(_drop_ear, address, writes=True)
            with contextlib.suppress(OSError):
                os.unlink(address)
        if thread is not None:
            await asyncio.to_thread(thread.join)
        if ear is not None:
            ear.close()
        if self._mouth is not None:
            self._mouth.close()
            self._mouth = None


def _unlink(address: str, process: int) -> None:
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            os.unlink(address)


def _selector(ear: socket.socket | None) -> selectors.BaseSelector:
    """What waits for messages on one socket."""
    waiting = selectors.DefaultSelector()
    if ear is not None:
        waiting.register(ear, selectors.EVENT_READ)
    return waiting


def _everything(ear: socket.socket) -> list[bytes]:
    """All messages that have come."""
    told: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            told.append(ear.recv(65536))
    return told


class Found(NamedTuple):
    """What a look at the file found."""

    news: int
    """The number of the latest news."""
    changed: bool
    """True when anything was written since the last look."""
    listed: bool
    """False when those who write do not know the socket any more."""
    replaced: bool
    """True when the path leads to another file since the last look."""


class Look:
    """A connection that only looks whether the file has changed, or is another one."""

    def __init__(self, path: Path, known: tuple[int, int] | None) -> None:
        self._path = path
        self._identity = known
        self._db: Any = None
        self._version = -1
        self._news = 0

    def found(self, space: int, address: str) -> Found:
        """Look at the file, on behalf of whoever listens at this address; none: nobody does."""
        now = identity(self._path)
        replaced = self._identity is not None and now is not None and now != self._identity
        changed, listed = False, True
        if replaced or now is None:
            self.close()
        if now is None and self._identity is not None:
            # The next file may have the number of the one that was deleted.
            self._identity = GONE
        try:
            if self._db is None and now is not None:
                self._db = connect(self._path, "normal")
                self._version, self._news, self._identity = -1, 0, now
            if self._db is not None:
                (version,) = self._db.execute("PRAGMA data_version").fetchone()
                if version != self._version:
                    row = self._db.execute(SPACE["news"], (address, space)).fetchone()
                    self._news, known = row or (0, True)
                    self._version, changed, listed = version, True, bool(known) or not address
        except sqlite3.Error:
            # The next look tries again; whoever needs the file is told what is wrong with it.
            self.close()
        return Found(self._news, changed, listed, replaced)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _drop_ear(unit: Unit, address: str) -> None:
    unit.db.execute(SPACE["drop_ear"], (address,))
    unit.ears_version += 1
    unit.news.ears.pop(address, None)
    unit.written = True


def _look_for_ends(unit: Unit, sleepers: Sleepers, ids: list[str]) -> None:
    """Jobs that somebody here waits for have ended elsewhere."""
    for job_id in ids:
        try:
            _, record = outcome(unit, job_id)
        except JobNotFound:
            sleepers.removed(job_id)
        else:
            if record is not None:
                sleepers.finished(job_id, record)
