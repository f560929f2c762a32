"""A strict service: it stamps what arrives, in a process of its own, and has no other job."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time

PORT = "PACELINE_BENCH_SERVICE"
"""Names the service's port to handlers, which call it in their first line."""


class Service:
    """Counts arrivals on loopback until it is asked what came."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "bench.service"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        os.environ[PORT] = self._process.stdout.readline().strip()

    def arrivals(self) -> list[int]:
        """When each call arrived, in nanoseconds of the clock that all processes share; ends the service."""
        os.environ.pop(PORT, None)
        told, _ = self._process.communicate("end\n", timeout=30)
        return [int(line) for line in told.split()]


class Caller:
    """What a handler calls, where a service listens."""

    def __init__(self) -> None:
        self._socket = None
        if PORT in os.environ:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.connect(("127.0.0.1", int(os.environ[PORT])))

    def call(self) -> None:
        if self._socket is not None:
            self._socket.send(b"x")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def serve() -> None:
    arriving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    arriving.bind(("127.0.0.1", 0))
    arriving.settimeout(0.2)
    print(arriving.getsockname()[1], flush=True)
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.readline()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    stamps: list[int] = []
    while not over.is_set():
        try:
            arriving.recv(16)
            stamps.append(time.monotonic_ns())
        except TimeoutError:
            continue
    print("\n".join(map(str, stamps)))


if __name__ == "__main__":
    serve()
