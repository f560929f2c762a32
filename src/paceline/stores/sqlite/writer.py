"""One thread per file and process: whole steps in one transaction, as many at once as are waiting."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from paceline.clock import Clock
from paceline.errors import PacelineError, StoreUnavailable
from paceline.forks import abandon
from paceline.stores.sqlite import schema
from paceline.stores.sqlite.callers import TOGETHER, Step, answer, gathered, resolve, waiting
from paceline.stores.sqlite.connect import (
    connect,
    is_busy,
    is_open,
    passes,
    translating,
    warn_of_fork,
    warn_of_network,
)
from paceline.stores.sqlite.folding import fold, log_is_long
from paceline.stores.sqlite.prepare import is_prepared, prepare
from paceline.stores.sqlite.unit import Unit

T = TypeVar("T")
log = logging.getLogger("paceline.sqlite")

PATIENCE = 30.0
"""So many seconds a transaction waits for other programs before its callers are told."""
LONGEST_NAP = 0.003
"""Seconds between two attempts to begin, once others have kept the file for a while."""
HERE = 100
"""So many quick steps share a transaction that an event loop does itself, at most."""
TOO_LONG = 0.005
"""Seconds after which a transaction was too long for an event loop."""
PAUSE = 1.0
"""Seconds for which the thread does everything after that."""
FORK_WAIT = 10.0
"""Seconds that a fork waits for a transaction of this process."""


class Writer:
    """Does steps, one transaction after the other. With a clock that a test moves it does them on the spot."""

    def __init__(
        self, path: Path, durability: str, clock: Clock, unit: Unit, reader: Unit, written: Callable[[], None]
    ) -> None:
        self.path = path
        self.durability = durability
        self.clock = clock
        self.unit = unit
        self.reader = reader
        """What those who only look have at hand: what they make up is nobody's business."""
        self._written = written
        self._db: Any = None
        self._lock = threading.RLock()
        self._starting = threading.Lock()
        self._steps: SimpleQueue[list[Step]] = SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[Step]] = {}
        """What callers of one event loop ask for in one round: handed over together."""
        self._thread: threading.Thread | None = None
        self._identity: tuple[int, int] | None = None
        self._commits = 0
        self._handed = 0
        """Batches that the thread has not answered yet."""
        self._slow_until = 0.0
        self._fold_wanted = False
        self._held = False
        self.inherited = False
        """A connection to the file was open when this process was forked."""

    async def run(self, call: Callable[..., T], *args: Any, writes: bool, quick: bool = False) -> T:
        """Do one step; returns when it is written. `quick`: the event loop may do it itself if nobody is in the way."""
        step = Step(call, args, writes, quick)
        if not self.clock.virtual:
            self._post(step)
            assert step.future is not None
            answered: T = await step.future
            return answered
        result: T = self._on_the_spot(step)
        return result

    def post(self, call: Callable[..., Any], *args: Any, writes: bool) -> None:
        """Do one step some time soon; nobody waits for it."""
        step = Step(call, args, writes)
        if self.clock.virtual:
            with self._lock:
                self._do([step])
        else:
            self._put([step])

    def now(self, call: Callable[..., T], *args: Any) -> T:
        """Look on the spot, in the caller's thread."""
        result: T = self._on_the_spot(Step(call, args, False))
        return result

    def _on_the_spot(self, step: Step) -> Any:
        with self._lock:
            self._do([step])
        if step.error is not None:
            raise step.error
        return step.result

    def _post(self, step: Step) -> None:
        step.loop = loop = asyncio.get_running_loop()
        step.future = loop.create_future()
        gathered = self._gathered.get(loop)
        if gathered is None:
            self._gathered[loop] = [step]
            loop.call_soon(self._hand_over, loop)
        else:
            gathered.append(step)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        steps = self._gathered.pop(loop, None)
        if steps and not self._done_here(steps):
            self._put(steps)

    def _done_here(self, steps: list[Step]) -> bool:
        """Do what takes a moment in the event loop itself: no other thread has to wake for it, and be waited for.

        False when it may take longer: many steps, another connection that writes, or a disk that is slow today.
        """
        few = len(steps) <= HERE and all(step.quick for step in steps)
        if not few or self._handed or time.monotonic() < self._slow_until or not self._lock.acquire(blocking=False):
            return False
        began = time.monotonic()
        try:
            if not self.is_connected or self._handed:
                return False
            try:
                self._db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            self._do(steps, begun=True)
        finally:
            self._lock.release()
        if time.monotonic() - began > TOO_LONG:
            self._slow_until = time.monotonic() + PAUSE
        resolve(steps)
        return True

    def _put(self, steps: list[Step]) -> None:
        with self._starting:
            self._handed += 1
            if self._thread is None:
                # A queue of its own for each thread: nobody else can take the word that ends it.
                self._steps = SimpleQueue()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._steps,), name="paceline-sqlite", daemon=True
                )
                self._thread.start()
            self._steps.put(steps)

    # forks

    def before_fork(self) -> None:
        """Let go of the file: a child that inherits a connection believes that it has the locks of its parent."""
        self._held = self._lock.acquire(timeout=FORK_WAIT)
        if self._held:
            self._disconnect()

    def after_fork(self) -> None:
        """The parent goes on, with a connection of its own when it needs one."""
        if self._held:
            self._held = False
            self._lock.release()

    def forked(self) -> None:
        """A child begins anew; a connection that it did inherit is neither used nor closed."""
        abandon(self._db)
        self._db = self._thread = None
        self._held = False
        self._gathered = {}
        self._lock, self._starting = threading.RLock(), threading.Lock()
        self.inherited = is_open(self.path)
        self._forget()

    def _serve(self, steps: SimpleQueue[list[Step]]) -> None:
        while batch := gathered(steps):
            with self._lock:
                self._do(batch)
                if self._fold_wanted:
                    self._fold_wanted = False
                    fold(self._db, self.path, self.clock.now())
            with self._starting:
                self._handed = 0 if steps.empty() else 1
            answer(batch)
        with self._lock:
            if self._thread is None:
                self._disconnect()

    async def close(self) -> None:
        """End the thread, when what is asked for is done, and let go of the file."""
        self._hand_over(asyncio.get_running_loop())
        with self._starting:
            thread, self._thread = self._thread, None
            self._steps.put([])
        if thread is not None:
            await asyncio.to_thread(thread.join)
        elif self.clock.virtual:
            with self._lock:
                self._disconnect()

    # transactions

    def _do(self, batch: list[Step], begun: bool = False) -> None:
        """All steps in one transaction; if that fails for a reason that is not theirs, one by one."""
        written = False
        try:
            with translating(self.path):
                written = self._transaction(batch, begun)
        except BaseException as error:
            self._forget()
            if not passes(error.__cause__ or error):
                # A connection remembers what it found when it was made: a file that could not be written, for instance.
                self._disconnect()
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):
                for step in batch:
                    self._do([step])
                return
            for step in batch:
                step.error = error
        if written:
            # It is written: whatever goes wrong from here on is not the callers' business.
            try:
                self._written()
                if self._commits % 64 == 0 and log_is_long(self.path):
                    self._fold_wanted = True
                    if begun:
                        # It takes its time: not in an event loop.
                        self.post(_nothing, writes=False)
            except Exception as error:
                log.warning("others could not be told of a change in %s: %s", self.path, error)

    def _transaction(self, batch: list[Step], begun: bool) -> bool:
        """True when something was written."""
        writes = any(step.writes for step in batch)
        if begun:
            db = self._db
        else:
            db = self._patiently(lambda: self._begun(writes), lambda: self._look_meanwhile(batch) if writes else None)
        unit = self.unit if writes else self.reader
        try:
            if not writes:
                db.execute("PRAGMA query_only = ON").fetchall()
            unit.begin(db)
            for step in batch:
                step.error = None
                try:
                    step.result = step.call(unit, *step.args)
                except PacelineError as error:
                    # A step that refuses has changed nothing: the others go on.
                    step.error = error
            if not writes:
                unit.discard()
                db.execute("ROLLBACK")
                return False
            written = unit.end()
            db.execute("COMMIT")
            if not written:
                return False
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        finally:
            if not writes:
                db.execute("PRAGMA query_only = OFF").fetchall()
        self._commits += 1
        return True

    def _begun(self, writes: bool) -> Any:
        db = self._connected()
        db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        return db

    def _look_meanwhile(self, batch: list[Step]) -> None:
        """Somebody else writes for long: callers who only look do not wait for that."""
        batch += waiting(self._steps, TOGETHER - len(batch))
        looks = [step for step in batch if not step.writes]
        if looks:
            batch[:] = [step for step in batch if step.writes]
            self._do(looks)
            answer(looks)

    def _patiently(self, call: Callable[[], T], meanwhile: Callable[[], object]) -> T:
        """Wait for others as long as it takes, but not for ever; short naps keep the wait short."""
        deadline = time.monotonic() + PATIENCE
        nap = 0.0002
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            # Nothing is begun: a fork need not wait as long as this.
            self._lock.release()
            time.sleep(nap * (0.5 + random.random()))
            self._lock.acquire()
            nap = min(nap * 1.5, LONGEST_NAP)
            if nap >= LONGEST_NAP:
                meanwhile()

    # the connection

    @property
    def is_connected(self) -> bool:
        """True when the file that the path leads to is open, with all that a step needs."""
        return self._db is not None and not self._replaced()

    def _connected(self) -> Any:
        if self.is_connected:
            return self._db
        if self._db is not None:
            # The next file may have the number of the one that was deleted, and may not be ours to read at once.
            self._identity = GONE
        self._disconnect()
        warn_of_network(self.path)
        if self.inherited:
            warn_of_fork(self.path)
            self.inherited = False
        db = connect(self.path, self.durability, lambda db: schema.version_of(db, self.path))
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._db = db
        before, self._identity = self._identity, identity(self.path)
        if before not in (None, self._identity):
            log.warning("%s was deleted or replaced while it was in use: the file that is there now is used", self.path)
            self.unit.replaced = True
        self._forget()
        for unit in (self.unit, self.reader):
            unit.connected()
        return db

    def _forget(self) -> None:
        """Nothing in memory is known to be true."""
        for unit in (self.unit, self.reader):
            unit.forget()

    def _prepare(self, db: Any) -> None:
        """Tables, clock and namespace. Where all is there nothing is written: the caller may hold the lock itself.

        Even a look can meet a lock here: while another process turns a new file to its log, or recovers it.
        """
        if is_prepared(db, self.path, self.clock, self.unit.namespace):
            return
        db.execute("BEGIN IMMEDIATE")
        try:
            prepare(db, self.path, self.clock, self.unit.namespace)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _replaced(self) -> bool:
        """True when the path leads to another file than the open one: what is written there would be lost."""
        return identity(self.path) != self._identity

    def settle(self) -> None:
        """Wait until what is written now is told."""
        with self._lock:
            return

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _nothing(unit: Unit) -> None:
    """The thread wakes up, and sees what else there is to do."""


GONE = (-1, -1)
"""The number of no file: whatever is found next is another one than before."""


def identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
