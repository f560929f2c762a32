"""The clock of a file: the machine's time since its start, the same for every process, plus an anchor in the file."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from pathlib import Path

from paceline.clock import Micros, SystemClock, since_boot
from paceline.stores.sqlite.meter_rows import moved

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """A name for this start of the machine; where there is none, the minute in which it was."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        minute = round((time.time() - since_boot() / 1e6) / 60)
        return f"{socket.gethostname()} {minute}"


class BootClock(SystemClock):
    """Wall time for display, carried by a clock that only goes forward."""

    def __init__(self) -> None:
        self.offset = time.time_ns() // 1000 - since_boot()

    def now(self) -> Micros:
        return since_boot() + self.offset


def is_anchored(db: sqlite3.Connection, clock: BootClock) -> bool:
    """True when the file's anchor belongs to this start of the machine: it is used from now on."""
    found, offset = db.execute("SELECT boot, clock FROM paceline_file").fetchone()
    if found == boot_id():
        clock.offset = offset
        return True
    return False


def anchor(db: sqlite3.Connection, clock: BootClock, boot: str | None = None) -> None:
    """Use the offset that all processes share; after a start of the machine, make a new one.

    How long the machine was off nobody knows for sure: starts and holds are moved as if it was no time at all,
    so that a wrong wall clock can never make a window look empty.
    """
    if boot is None and is_anchored(db, clock):
        return
    boot = boot_id() if boot is None else boot
    (latest,) = db.execute("SELECT coalesce(max(latest), 0) FROM paceline_space").fetchone()
    now = max(time.time_ns() // 1000, latest)
    clock.offset = now - since_boot()
    db.execute("UPDATE paceline_file SET boot = ?, clock = ?", (boot, clock.offset))
    if latest:
        _move_stamps(db, now - latest, latest)


def _move_stamps(db: sqlite3.Connection, by: Micros, latest: Micros) -> None:
    # In two steps, so that no stamp meets one that is still to be moved.
    db.execute("UPDATE paceline_spent SET at = -(at + ?)", (by,))
    db.execute("UPDATE paceline_spent SET at = -at")
    db.execute("UPDATE paceline_meter SET hold_until = hold_until + ? WHERE hold_until > ?", (by, latest))
    db.execute("UPDATE paceline_meter SET held_at = held_at + ? WHERE held_at > 0", (by,))
    for number, cells in db.execute("SELECT id, cells FROM paceline_meter").fetchall():
        db.execute("UPDATE paceline_meter SET cells = ? WHERE id = ?", (moved(cells, by), number))
    db.execute(
        "UPDATE paceline_meter SET revision = revision + 1, generation = generation + 1, idle_from = idle_from + ?",
        (by,),
    )
    for space, text in db.execute("SELECT space, document FROM paceline_rules").fetchall():
        document = json.loads(text)
        document["held"] = {
            name: (until + by if until > latest else until, why) for name, (until, why) in document["held"].items()
        }
        db.execute("UPDATE paceline_rules SET document = ? WHERE space = ?", (json.dumps(document), space))
    db.execute("UPDATE paceline_space SET version = version + 1, rules_version = rules_version + 1")
