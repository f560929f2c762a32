"""Runs scripts: a connection for each event loop, opened when needed, found again when lost."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from typing import Any, cast

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from paceline.errors import StoreError, StoreUnavailable
from paceline.forks import PerLoop, abandon, reset_when_forked
from paceline.stores.address import split, without_password, wrong
from paceline.stores.redis.outage import Outage
from paceline.stores.redis.refusals import refusal, server_error
from paceline.stores.redis.scripts import is_outdated, library
from paceline.stores.redis.wire import Broken, Wire

log = logging.getLogger("paceline.store")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
MOVES = 5
"""So many redirections of a cluster are followed before it is taken to be in disorder."""


KEPT = frozenset({"insert", "claim", "finish", "acquire", "move", "set_limits"})
"""Steps whose answer is a promise."""


def keepalive() -> dict[int, int]:
    """Who vanished without a word (a cable, a firewall) is noticed within five seconds; no command is spent on it."""
    wanted = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5_000}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


def url_options(scheme: str) -> frozenset[str]:
    """The options of a URL that are the driver's."""
    kind = {"rediss": redis.SSLConnection, "unix": redis.UnixDomainSocketConnection}.get(scheme, redis.Connection)
    makers = [signature(each.__init__).parameters for each in kind.__mro__ if "__init__" in vars(each)]
    return frozenset(name for names in makers for name in names) - {"self", "args", "kwargs"}


def check_url(url: str) -> str:
    """The URL, if it says what the driver would silently take for something else."""
    parts = split(url)
    database = parts.path.strip("/")
    if parts.scheme == "unix" or not database or database.isdecimal():
        return url
    raise wrong(url, f"{database!r} is no number of a database; expected for example redis://host:6379/0")


class Client:
    """One server (or the node of a cluster that has our slot), for all event loops of this process."""

    def __init__(self, url: str, head: str, *, connect_timeout: float, timeout: float) -> None:
        self.shown = without_password(check_url(url))
        self.outage = Outage(self.shown)
        self.head = head.encode()
        self.timeout = timeout
        self.fsync = False
        """True when answers wait until the server has written to disk."""
        self._library = library()
        self.greet: Callable[[Wire], Any] | None = None
        """Awaited with every new connection before it is used."""
        self.born: int | None = None
        """Which life of the namespace we know: steps that know another one are refused before they do anything."""
        try:
            self._pool = redis.ConnectionPool.from_url(
                url,
                socket_connect_timeout=connect_timeout,
                socket_timeout=connect_timeout,
                **(
                    {}
                    if url.startswith("unix")
                    else {"socket_keepalive": True, "socket_keepalive_options": keepalive()}
                ),
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                # The pool counts what it ever made, and every try to find a lost server is one more.
                max_connections=2**31,
            )
        except (ValueError, TypeError) as error:
            raise wrong(url, str(error)) from error
        place = self._pool.connection_kwargs
        self._home = {name: place[name] for name in ("host", "port") if name in place}
        self._wires: PerLoop[asyncio.AbstractEventLoop, Wire] = PerLoop()
        self._opening: PerLoop[asyncio.AbstractEventLoop, asyncio.Task[Wire]] = PerLoop()
        self.when_silent: PerLoop[asyncio.AbstractEventLoop, Callable[[], Any]] = PerLoop()
        """What each loop does when its connection is given up because nothing comes: its other one may be as dead."""
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        reset_when_forked(self)

    def forked(self) -> None:
        """A child process connects with threads of its own."""
        abandon(self._threads)
        self._threads = None
        self.outage = Outage(self.shown)
        self._lock = threading.Lock()

    async def run(
        self, name: str, wanted: dict[str, Any], bodies: Sequence[bytes] = (), *, again: bool = False
    ) -> list[Any]:
        """Run one script; `again`: it may run twice, so a broken connection is no reason to give up."""
        for _ in range(MOVES):
            wanted["born"] = known = self.born
            words = (b"FCALL", self._library.function(name), 1, self.head, _encode(wanted), *bodies)
            answer = await self.command(*words, again=again, keep=self.fsync and name in KEPT)
            if len(answer) != 2 or answer[0] != b"refused":
                return cast(list[Any], answer)
            about = _decode(answer[1])
            match about["refusal"]:
                case "another life":
                    await self.greet_again(known)
                case "an override ended":
                    await self._expire(wanted)
                case _:
                    raise refusal(about, wanted)
        raise StoreUnavailable(f"{self.shown} loses its data again and again")

    async def _expire(self, wanted: dict[str, Any]) -> None:
        """A step that only reads found numbers of an operator whose time is over: end them, where we may write."""
        try:
            await self.run("expire", {"now": wanted["now"]} if "now" in wanted else {}, again=True)
        except StoreUnavailable:
            wanted["stale"] = True

    async def greet_again(self, known: int | None) -> None:
        """The server lost its data since the life we knew: introduce ourselves anew, unless somebody did already."""
        wire = await self.wire()
        if self.born == known and self.greet is not None:
            try:
                await self.greet(wire)
            except redis.ResponseError as error:
                raise server_error(error) from error

    def function(self, name: str) -> bytes:
        """The name of a step at the server."""
        return self._library.function(name)

    @property
    def open_wire(self) -> Wire | None:
        """This loop's connection, if it has one."""
        wire = self._wires.get(asyncio.get_running_loop())
        return None if wire is None or wire.broken is not None else wire

    async def wire(self) -> Wire:
        """This loop's connection, opened if it has none."""
        return self.open_wire or await self._wire()

    def post(self, name: str, wanted: dict[str, Any]) -> asyncio.Future[Any] | None:
        """Send a script at once, without waiting, if this loop has a connection; whatever is sent later comes later."""
        wire = self.open_wire
        if wire is None:
            return None
        return wire.request(b"FCALL", self._library.function(name), 1, self.head, _encode(wanted))

    async def command(self, *words: Any, again: bool = False, keep: bool = False) -> Any:
        """Send one command on this loop's connection; errors come as ours."""
        for _ in range(MOVES):
            wire = self.open_wire or await self._wire()
            try:
                answer = wire.request(*words)
                return await (self._kept(answer, wire) if keep else answer)
            except Broken as error:
                if error.sent:
                    self.outage.begins(error)
                if error.sent and not again:
                    raise
                again = again and not error.sent
            except redis.ResponseError as error:
                await self._make_good(error, wire)
        raise StoreUnavailable(f"{self.shown} sends us from one place to the other")

    async def _kept(self, answer: asyncio.Future[Any], wire: Wire) -> Any:
        """The answer, after what it promises is on disk."""
        written = wire.request(b"WAITAOF", 1, 0, int(self.timeout * 500))
        await asyncio.wait([answer, written])
        result = answer.result()
        try:
            numbers = written.result()
        except redis.ResponseError as error:
            raise server_error(error) from error
        if not numbers[0]:
            raise StoreUnavailable(f"{self.shown} has it, but did not write it to disk within {self.timeout / 2:g} s")
        return result

    async def _make_good(self, error: Any, wire: Wire) -> None:
        """Do what an answer asks for, so that the command can be sent again; else its error is raised."""
        said = str(error)
        if "Function not found" in said:
            await self._load(wire)
            return
        if self._follow(said):
            wire.close("the slot has moved")
            return
        problem = server_error(error)
        if said.startswith(("READONLY", "MASTERDOWN")):
            # A primary that became a replica: the next call looks for the new one.
            wire.close("the server is no primary any more")
        raise problem from error

    def _follow(self, said: str) -> bool:
        """A node of a cluster says which other node has our slot; True when that is where to go."""
        if not said.startswith("MOVED "):
            return False
        host, _, port = said.split()[2].rpartition(":")
        place = self._pool.connection_kwargs
        place.update(host=host or place.get("host"), port=int(port))
        return True

    async def load_if_missing(self, wire: Wire) -> None:
        """Make sure that the server knows our steps, and forgets those of releases that cannot run beside this one."""
        answer = await wire.request(b"FUNCTION", b"LIST", b"LIBRARYNAME", b"paceline_*")
        names = {found[found.index(b"library_name") + 1].decode() for found in answer}
        if self._library.name in names:
            return
        await self._load(wire)
        for name in filter(is_outdated, names):
            try:
                await wire.request(b"FUNCTION", b"DELETE", name)
            except redis.ResponseError as error:  # somebody was faster, or we may not: it is in nobody's way
                log.debug("the library %s of an earlier release stays on %s: %s", name, self.shown, error)

    async def _load(self, wire: Wire) -> None:
        """Teach the server our steps: it is new, was replaced, or somebody made it forget them."""
        try:
            await wire.request(b"FUNCTION", b"LOAD", b"REPLACE", self._library.text)
        except redis.ResponseError as error:
            if str(error).startswith("OOM"):
                raise StoreError(
                    f"the memory of {self.shown} is full: it has no room for the functions of this version of "
                    f"Paceline; raise maxmemory, or let programs that it knows already catch up ({error})"
                ) from error
            raise server_error(error) from error

    async def _wire(self) -> Wire:
        """This loop's connection; callers that come while it is opened wait for the same one."""
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._open_wire(loop))
            opening.add_done_callback(lambda _: self._opening.pop(loop, None))
        return await asyncio.shield(opening)

    async def _open_wire(self, loop: asyncio.AbstractEventLoop) -> Wire:
        for _ in range(MOVES):
            wire = await self.connect(self.timeout)
            try:
                if self.greet is not None:
                    await self.greet(wire)
                break
            except redis.ResponseError as error:
                wire.close()
                if not self._follow(str(error)):
                    raise server_error(error) from error
            except BaseException:
                wire.close()
                raise
        else:
            raise StoreUnavailable(f"{self.shown} sends us from one place to the other")
        self.outage.ends()
        with self._lock:
            for old in [old for old in self._wires if old.is_closed()]:
                self._wires.pop(old).close()
                self.when_silent.pop(old, None)
            self._wires[loop] = wire
        return wire

    async def connect(self, timeout: float | None) -> Wire:
        """A new connection, opened in a thread so that a slow server does not hold up the loop."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(2, thread_name_prefix="paceline-connect")
        loop = asyncio.get_running_loop()
        connection = await loop.run_in_executor(self._threads, self._connect)
        return Wire(connection, timeout, None if timeout is None else lambda: self.when_silent.get(loop, int)())

    def _connect(self) -> Any:
        connection = self._pool.make_connection()
        try:
            connection.connect()
        except redis.AuthenticationError as error:
            raise server_error(error) from error
        except redis.ResponseError as error:
            raise server_error(error) from error
        except (redis.RedisError, OSError) as error:
            # A node that a cluster sent us to may be gone: the next try begins where the URL says.
            self._pool.connection_kwargs.update(self._home)
            self.outage.begins(error)
            raise StoreUnavailable(f"{self.shown} cannot be reached: {error}") from error
        return connection

    def close(self) -> None:
        """Close every connection; who waits for an answer gets an error."""
        self.outage = Outage(self.shown)
        with self._lock:
            wires = list(self._wires.take().values())
            threads, self._threads = self._threads, None
        for wire in wires:
            wire.close("the store was closed")
        if threads is not None:
            threads.shutdown(wait=False)
