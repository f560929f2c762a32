"""What a transaction has changed in memory and not yet in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.stores.interface import StartRecord

if TYPE_CHECKING:
    from paceline.stores.sqlite.lanes import SqliteClass, SqliteGroup, SqliteLane
    from paceline.stores.sqlite.meters import SqliteMeter
    from paceline.stores.sqlite.rows import SqliteRow


class Dirty:
    """Marks of everything that must be written before the transaction ends."""

    def __init__(self) -> None:
        self.new: dict[SqliteRow, None] = {}
        self.rows: dict[SqliteRow, None] = {}
        self.removed: list[int] = []
        self.waits: dict[tuple[int, int, int], int | None] = {}
        """Place in a lane → the job that waits there now, None: nobody."""
        self.delayed: dict[tuple[int, int, int], int | None] = {}
        self.unique: dict[tuple[int, str], int | None] = {}
        self.starts: list[tuple[int, int, StartRecord]] = []
        self.lanes: list[SqliteLane] = []
        self.groups: list[SqliteGroup] = []
        self.classes: list[SqliteClass] = []
        self.meters: list[SqliteMeter] = []
        self.dropped_lanes: list[int] = []
        self.dropped_groups: list[int] = []
        self.dropped_classes: list[int] = []
        self.permits: dict[str, Any] = {}
        self.workers: dict[str, Any] = {}
        self.claimed: dict[str, Any] = {}

    def any(self) -> bool:
        """True when something must be written."""
        return any(self.__dict__.values())
