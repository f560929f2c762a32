"""A service with a quota, as people meet it: at most so many arrivals in any window, else 429 and Retry-After.

It runs in a process of its own, so that its clock and its work are not the worker's.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass

WORK = 0.03
"""Seconds that a webhook takes there."""


class Quota:
    """A sliding window over arrivals."""

    def __init__(self, most: int, per: float) -> None:
        self._most = most
        self._per = per
        self._arrivals: deque[float] = deque()

    def admits(self, now: float) -> float:
        """0 when this arrival is within the quota, else the seconds until one would be."""
        while self._arrivals and self._arrivals[0] <= now - self._per:
            self._arrivals.popleft()
        if len(self._arrivals) < self._most:
            self._arrivals.append(now)
            return 0.0
        return self._arrivals[0] + self._per - now


class Service:
    """Answers webhooks, and remembers every arrival."""

    def __init__(self, most: int, per: float) -> None:
        self._quota = Quota(most, per)
        self._log: list[tuple[float, str, int]] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
            if method == "GET" and path == "/log":
                writer.write(_http("200 OK", json.dumps(self._log).encode()))
            else:
                writer.write(await self._hook(headers.get("x-tenant", "")))
            await writer.drain()
        except (asyncio.IncompleteReadError, ValueError, OSError):
            pass  # whoever hung up wants no answer
        finally:
            writer.close()

    async def _hook(self, tenant: str) -> bytes:
        now = time.monotonic()
        wait = self._quota.admits(now)
        self._log.append((now, tenant, 429 if wait else 200))
        if wait:
            return _http("429 Too Many Requests", b"slow down", f"Retry-After: {math.ceil(wait)}\r\n")
        await asyncio.sleep(WORK)
        return _http("200 OK", b"delivered")


def _http(status: str, body: bytes, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request as the service saw it."""

    at: float
    tenant: str
    status: int


class RunningService:
    """The service in its own process; it ends with us, however we end."""

    def __init__(self, most: int, per: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve({most}, {per})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    async def post(self, tenant: str) -> tuple[int, dict[str, str]]:
        """Deliver one webhook; gives the status and the headers of the answer."""
        status, headers, _ = await self._ask(f"POST /hook HTTP/1.1\r\nHost: localhost\r\nX-Tenant: {tenant}\r\n\r\n")
        return status, headers

    async def log(self) -> list[Arrival]:
        """Every arrival, in order."""
        _, _, body = await self._ask("GET /log HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return [Arrival(*each) for each in json.loads(body)]

    async def _ask(self, request: str) -> tuple[int, dict[str, str], bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request.encode())
            answer = await reader.read()
        finally:
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        return int(first.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body

    def end(self) -> None:
        """Stop it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


async def _serve(most: int, per: float) -> None:
    server = await asyncio.start_server(Service(most, per).answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wait_for_the_end() -> None:
        os.read(0, 1)  # our input ends when whoever started us does
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    await ended.wait()


def serve(most: int, per: float) -> None:
    """The life of the process: say the port, answer until our input ends."""
    asyncio.run(_serve(most, per))
