"""One claim on its way: what it may still move and take, and what it learned about waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.clock import Micros
from paceline.stores.interface import Failed
from paceline.stores.steps.lanes import PARKED, Lane, LaneClass
from paceline.stores.steps.registry import LaneMeter
from paceline.stores.steps.rows import Row

if TYPE_CHECKING:
    from paceline.stores.steps.queue_state import QueueState


class Choosing:
    """One claim on its way: what it may still move and take, and what it learned about waiting."""

    __slots__ = (
        "also",
        "budget",
        "failed",
        "misfits",
        "most",
        "needs_room",
        "now",
        "plain",
        "queues",
        "room",
        "skipped",
        "stuck",
        "tasks",
        "visible",
    )

    def __init__(
        self,
        now: Micros,
        budget: int,
        queues: list[QueueState],
        tasks: frozenset[str] | None,
        also: list[LaneMeter],
        room: int | None,
    ) -> None:
        self.now = now
        self.budget = budget
        self.queues = queues
        self.tasks = tasks
        self.also = also
        self.room = room
        self.plain = room is None and not also
        """True when a worker asks for nothing but what the store's limits allow."""
        self.needs_room = 0
        self.most: int | None = None
        self.skipped: list[Lane] = []
        self.stuck: dict[QueueState, Micros] = {}
        """Queues whose next job waits for a limit that the worker brings along, and until when."""
        self.misfits: list[tuple[Row, str]] = []
        self.failed: list[Failed] = []
        self.visible: dict[QueueState, list[LaneClass]] = {}

    def skip(self, lane: Lane) -> None:
        """Pass over a lane whose head can never start at this worker, for this claim."""
        self.skipped.append(lane)
        lane.state = PARKED
        self.budget -= 1
