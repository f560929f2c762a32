"""Waking sleepers of other processes: a datagram socket beside the file, and a rare look at the file as a fallback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import selectors
import socket
import tempfile
import threading
import weakref
from pathlib import Path
from uuid import uuid4

import msgspec

from paceline.errors import JobNotFound, StoreError
from paceline.stores.sqlite.notifications import Message, Notifications, wake
from paceline.stores.sqlite.polling import Look
from paceline.stores.sqlite.reading import outcome
from paceline.stores.sqlite.statements import statements
from paceline.stores.sqlite.unit import Unit
from paceline.stores.sqlite.writer import Writer, identity
from paceline.stores.steps.sleepers import Sleepers

log = logging.getLogger("paceline.sqlite")

POLL_EVERY = 0.6
"""Seconds between two looks at the file: what no notification came for is found that late."""
LONGEST_ADDRESS = 100
SPACE = statements("space")


class Listening:
    """The socket of this process, who receives from it, and the way to those of others."""

    def __init__(self, path: Path, unit: Unit, writer: Writer, sleepers: Sleepers) -> None:
        self._path = path
        self._unit = unit
        self._writer = writer
        self._sleepers = sleepers
        self._sender: socket.socket | None = None
        self.known = 0
        """The latest notification that this process knows of."""
        self.missed = 0
        self.forked()

    def forked(self) -> None:
        """Begin without an receiver; a child process leaves its parent's alone."""
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._file = Look(self._path, None)
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that receives; None: the thread does."""
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

    # receiving

    def open(self, *, waits: bool = False) -> None:
        """Begin to listen; `waits`: for the ends of jobs too."""
        with self._lock:
            new = self._thread is None
            if new:
                self._stop = threading.Event()
                self._listen()
                self._thread = threading.Thread(target=self._poll, name="paceline-listener", daemon=True)
                self._thread.start()
            self._join_loop()
            if new or (waits and not self._waits):
                self._waits |= waits
                self._writer.post(self._add, self._address, self._waits, writes=True)

    def _join_loop(self) -> None:
        """Let the running event loop receive: no thread has to wake for a message, and wake the loop for it."""
        receiver = self._socket
        if receiver is None or (self._loop is not None and not self._loop.is_closed()):
            return
        self._loop = None
        # Some loops cannot wait for sockets, and who listens may have none.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            loop = asyncio.get_running_loop()
            loop.add_reader(receiver, self._receive, receiver)
            self._loop = loop

    def _leave_loop(self, receiver: socket.socket, new: socket.socket | None = None) -> None:
        """Close a socket; where an event loop waits for it, in that loop, which may wait for another one instead."""
        loop = self._loop
        if loop is None or loop.is_closed():
            receiver.close()
            return
        if new is None:
            self._loop = None

        def leave() -> None:
            loop.remove_reader(receiver)
            receiver.close()
            if new is not None:
                loop.add_reader(new, self._receive, new)

        with contextlib.suppress(RuntimeError):  # it was closed at this very moment
            loop.call_soon_threadsafe(leave)

    def _receive(self, receiver: socket.socket) -> None:
        try:
            if messages := _everything(receiver):
                self._take(messages)
        except Exception as error:
            log.warning("a message about %s could not be understood: %s", self._path, error)

    def _add(self, unit: Unit, address: str, waits: bool) -> None:
        self.known = max(self.known, unit.notified)
        self._added = address
        if address:
            unit.db.execute(SPACE["add_listener"], (address, unit.space, waits))
            unit.listeners_version += 1
            unit.notifications.set_listeners({**unit.notifications.listeners, address: int(waits)})
            unit.written = True

    def _listen(self) -> None:
        if not hasattr(socket, "AF_UNIX"):
            return
        name = f"{uuid4().hex[:12]}.sock"
        address = f"{self._path}-{name}"
        if len(os.fsencode(address)) > LONGEST_ADDRESS:
            address = os.path.join(tempfile.gettempdir(), f"paceline-{name}")
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            receiver.bind(address)
        except OSError as error:
            log.info("no socket beside %s (%s): the file is looked at instead", self._path, error)
            receiver.close()
        else:
            receiver.setblocking(False)
            self._socket, self._address = receiver, address
            # A program that ends without closing leaves no socket behind.
            weakref.finalize(receiver, _unlink, address, os.getpid())

    def _poll(self) -> None:
        stop, receiver = self._stop, self._socket
        self._file = look = Look(self._path, identity(self._path))
        waiting = _selector(receiver)
        while not stop.is_set():
            try:
                messages: list[bytes] = []
                if receiver is None or (self._loop is not None and not self._loop.is_closed()):
                    stop.wait(POLL_EVERY)
                elif waiting.select(POLL_EVERY):
                    messages = _everything(receiver)
                if stop.is_set():
                    break
                if messages:
                    self._take(messages)
                else:
                    self._look(look)
                    if self._socket is not receiver:
                        waiting.close()
                        receiver = self._socket
                        waiting = _selector(receiver)
            except Exception as error:
                log.warning("a message about %s could not be understood: %s", self._path, error)
        with self._looking:
            look.close()
        waiting.close()

    def _take(self, received: list[bytes]) -> None:
        everyone = False
        messages: dict[str, set[str]] = {"queues": set(), "empty": set(), "workers": set(), "ended": set()}
        for text in received:
            try:
                message = msgspec.json.decode(text, type=Message)
            except msgspec.MsgspecError:
                # Whoever sent this is not one of us.
                continue
            self.known = max(self.known, message.number)
            everyone |= message.all
            for name, found in messages.items():
                found.update(getattr(message, name))
            if message.much:
                messages["ended"].update(self._sleepers.waiters)
        ended = messages.pop("ended") & self._sleepers.waiters.keys()
        if ended:
            self._writer.post(_look_for_ends, self._sleepers, sorted(ended), writes=False)
        wake(self._sleepers, everyone, **messages)

    def _look(self, look: Look) -> None:
        """Whether something happened without a notification: a caller's transaction, a lost message, another file."""
        with self._looking:
            found = look.found(self._unit.space, self._address)
        if not found.replaced and found.notified > self.known:
            # It may be this process's own, written but not yet sent.
            self._writer.settle()
        unnotified = not found.replaced and found.notified > self.known
        dropped = not found.listed and self._added == self._address
        if found.replaced:
            self.known = 0
            self._writer.post(self._add, self._address, self._waits, writes=True)
        elif dropped:
            self._listen_again()
        if unnotified:
            self.missed += 1
            self.known = found.notified
        # Ends are notified of only where somebody who is listed waits for them.
        if unnotified or found.replaced or dropped or (found.changed and not self._address):
            waiting = sorted(self._sleepers.waiters)
            if waiting:
                self._writer.post(_look_for_ends, self._sleepers, waiting, writes=False)
        if unnotified or found.replaced or dropped:
            self._sleepers.wake_all()

    def _listen_again(self) -> None:
        """Somebody could not reach our socket and took it off the list: one whose file is gone is made anew."""
        with self._lock:
            if self._stop.is_set() or self._socket is None:
                return
            if not os.path.exists(self._address):
                old = self._socket
                self._socket, self._address = None, ""
                self._listen()
                self._leave_loop(old, self._socket)
            self._writer.post(self._add, self._address, self._waits, writes=True)

    # notifying

    def notify(self, notifications: Notifications, number: int) -> None:
        """Send what happened to the other processes."""
        self.known = max(self.known, number)
        others = [address for address in notifications.listeners if address != self._address]
        if not others or not hasattr(socket, "AF_UNIX"):
            return
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        message = notifications.message(number)
        for address in others:
            try:
                self._sender.sendto(message, address)
            except (FileNotFoundError, ConnectionRefusedError):
                # Nobody is there any more.
                notifications.listeners.pop(address, None)
                self._writer.post(_drop_listener, address, writes=True)
                with contextlib.suppress(OSError):
                    os.unlink(address)
            except OSError:
                # It has plenty to receive already, or we may not write to it: others may.
                pass

    async def close(self) -> None:
        """Listen no more."""
        with self._lock:
            thread, receiver, address, stop = self._thread, self._socket, self._address, self._stop
            self._thread = self._socket = None
            self._address, self._waits = "", False
        stop.set()
        if address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # Whoever is full of messages wakes up by itself, or has ended already: then nobody would make room.
                sender.setblocking(False)
                sender.sendto(b"{}", address)
            with contextlib.suppress(StoreError):
                await self._writer.run(_drop_listener, address, writes=True)
            with contextlib.suppress(OSError):
                os.unlink(address)
        if thread is not None:
            await asyncio.to_thread(thread.join)
        if receiver is not None:
            self._leave_loop(receiver)
        if self._sender is not None:
            self._sender.close()
            self._sender = None


def _unlink(address: str, process: int) -> None:
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            os.unlink(address)


def _selector(receiver: socket.socket | None) -> selectors.BaseSelector:
    """What waits for messages on one socket."""
    waiting = selectors.DefaultSelector()
    if receiver is not None:
        waiting.register(receiver, selectors.EVENT_READ)
    return waiting


def _everything(receiver: socket.socket) -> list[bytes]:
    """All messages that have come."""
    messages: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            messages.append(receiver.recv(65536))
    return messages


def _drop_listener(unit: Unit, address: str) -> None:
    unit.db.execute(SPACE["drop_listener"], (address,))
    unit.listeners_version += 1
    others = {other: waits for other, waits in unit.notifications.listeners.items() if other != address}
    unit.notifications.set_listeners(others)
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
