"""One connection in one event loop: requests go out as they come, answers come back in the same order."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis
import redis

from paceline.errors import StoreUnavailable

READ = 1 << 18
FRESH = 0.02
"""Seconds for which a connection that just gave an answer is not looked at again before it is used."""


class Broken(StoreUnavailable):
    """The connection broke; `sent` tells whether the server may have seen the request."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Wire:
    """A socket that redis-py opened (address, password, TLS); many callers share it without waiting for each other."""

    def __init__(self, connection: Any, timeout: float | None, silent: Callable[[], None] | None = None) -> None:
        self._connection = connection
        self._socket: socket.socket = connection._sock
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent = bytearray()
        self._timeout = timeout
        self._silent = silent
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = self._loop.time()
        self.broken: str | None = None
        self._loop.add_reader(self._socket.fileno(), self._readable)

    def request(self, *words: bytes | str | int) -> asyncio.Future[Any]:
        """Send a command; the future is its answer (an error answer is the future's exception)."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.broken is None and not self._waiting:
            now = self._loop.time()
            if now - self._heard_at > FRESH:
                self._look_for_its_end()
            self._heard_at = now
        if self.broken is not None:
            future.set_exception(Broken(self.broken, sent=False))
            return future
        self._waiting.append(future)
        if self._timer is None and self._timeout is not None:
            self._timer = self._loop.call_later(self._timeout / 2, self._look_for_silence, None)
        self._send(hiredis.pack_command(words))
        return future

    def close(self, reason: str = "the connection was closed") -> None:
        """Let go; from any thread, also when the loop is gone."""
        if self.broken is not None:
            return
        self.broken = reason
        if threading.get_ident() == self._thread and not self._loop.is_closed():
            self._let_go()
            return
        try:
            self._loop.call_soon_threadsafe(self._let_go)
        except RuntimeError:  # the loop is closed: nobody waits there
            self._connection.disconnect()

    def _let_go(self) -> None:
        fd = self._socket.fileno()
        if fd >= 0:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
        self._connection.disconnect()
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(Broken(self.broken or "", sent=True))

    def _look_for_its_end(self) -> None:
        """A server that is gone said so: what is not sent into the void can be sent elsewhere."""
        if isinstance(self._socket, ssl.SSLSocket):
            return
        try:
            if not self._socket.recv(1, socket.MSG_PEEK):
                self.close("the server closed the connection")
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"the connection to the server broke: {error}")

    def _send(self, packed: bytes) -> None:
        if self._unsent:
            self._unsent += packed
            return
        try:
            sent = self._socket.send(packed)
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        except OSError as error:
            self.close(f"the connection to the server broke: {error}")
            return
        if sent < len(packed):
            self._unsent += packed[sent:]
            self._loop.add_writer(self._socket.fileno(), self._writable)

    def _writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self.close(f"the connection to the server broke: {error}")
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        reader = self._reader
        while True:
            try:
                read = self._socket.recv(READ)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError as error:
                self.close(f"the connection to the server broke: {error}")
                return
            if not read:
                self.close("the server closed the connection")
                return
            reader.feed(read)
            if len(read) < READ and not isinstance(self._socket, ssl.SSLSocket):
                break
        self._answer(reader)

    def _answer(self, reader: Any) -> None:
        waiting = self._waiting
        while waiting:
            reply = reader.gets()
            if reply is False:
                return
            future = waiting.popleft()
            if not future.done():
                if isinstance(reply, hiredis.ReplyError):
                    future.set_exception(redis.ResponseError(str(reply)))
                else:
                    future.set_result(reply)

    def _look_for_silence(self, oldest: asyncio.Future[Any] | None) -> None:
        """A server that is silent for so long while somebody waits is taken for gone."""
        self._timer = None
        if not self._waiting or self._timeout is None:
            return
        if self._waiting[0] is oldest:
            self.close(f"the server did not answer within {self._timeout:g} s")
            if self._silent is not None:
                self._silent()
        else:
            self._timer = self._loop.call_later(self._timeout / 2, self._look_for_silence, self._waiting[0])
