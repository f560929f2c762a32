"""What is done to a queue as a whole, in parts: a million jobs are no reason to hold its lock for long."""

from __future__ import annotations

import asyncio
from typing import Any

from paceline.clock import Micros
from paceline.job import MOVES, JobState, Move
from paceline.stores.postgres.faults import NUMBERS, fault
from paceline.stores.postgres.limiting import LimitCalls

PART = 1000
"""So many jobs one statement looks at."""


def states_of(move: Move) -> list[int]:
    """The numbers of the states from which a move is allowed."""
    return [NUMBERS[state] for state in MOVES[move] if state in NUMBERS]


class QueueCalls(LimitCalls):
    """The part of the store that is about whole queues."""

    async def move_all(self, queue: str, state: JobState, move: Move) -> int:
        return await self._in_parts(
            "move_all($1::int, $2::bigint, $3::int, $4::int, $5::text, $6::int[], $7::boolean, $8::bigint, $9::bigint,"
            " $10::int)",
            await self.space(),
            self.given_now(),
            await self.queue_id(queue),
            NUMBERS.get(state, 0),
            str(move),
            states_of(move),
            self.ears.wants_empty,
            again=False,
        )

    async def drain(self, queue: str) -> int:
        return await self._in_parts(
            "drain($1::int, $2::int, $3::bigint, $4::bigint, $5::int)", await self.space(), await self.queue_id(queue)
        )

    async def clean(self, queue: str, state: JobState, older_than: Micros) -> int:
        if state is JobState.ACTIVE:
            raise fault({"error": "not allowed", "id": queue, "state": NUMBERS[state], "move": "clean"})
        return await self._in_parts(
            "clean($1::int, $2::bigint, $3::int, $4::int, $5::bigint, $6::bigint, $7::bigint, $8::int)",
            await self.space(),
            self.given_now(),
            await self.queue_id(queue),
            NUMBERS.get(state, 0),
            older_than,
        )

    async def _in_parts(self, call: str, *values: Any, again: bool = True) -> int:
        """Call a function that goes through the jobs of a queue, until it has come to the last one."""
        done, last, upto = 0, 0, None
        while last is not None:
            number, wakes, last, upto = await self.calls.row(
                f"select * from paceline.{call}", *values, last, upto, PART, again=again
            )
            done += number
            self.woken(wakes)
            await asyncio.sleep(0)
        return done

    async def obliterate(self, queue: str, force: bool) -> int:
        number, wakes = await self.calls.row(
            "select * from paceline.obliterate($1::int, $2::int, $3::boolean)",
            await self.space(),
            await self.queue_id(queue),
            force,
        )
        self.woken(wakes)
        return int(number)

    async def pause(self, queue: str, task: str | None, group: str | None, paused: bool) -> None:
        await self.calls.rows(
            "select paceline.pause($1::int, $2::text, $3::text, $4::boolean)",
            await self.queue_id(queue),
            task,
            group,
            paused,
        )
        self.ears.hear([f"q{queue}"])
