"""Looks of workers that found nothing, and of whoever prunes: one command tells whether anything happened since."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import msgspec

from paceline.clock import Clock
from paceline.forks import reset_when_forked
from paceline.stores.interface import Ask, Claim
from paceline.stores.redis import layout
from paceline.stores.redis.client import Client
from paceline.stores.redis.wire import Wire

LONG = 20.0
"""Seconds after which a worker that found nothing, and was told nothing, first asks whether anything happened."""
RECENT = 45.0
"""Seconds for which what such a question found is good enough to put off a prune."""

_decode_head = msgspec.msgpack.Decoder(layout.Head).decode


class Head(NamedTuple):
    """What the server counts of its own steps."""

    steps: int
    pruned_steps: int
    prune_due: int
    born: int | None


class Rest(NamedTuple):
    """A claim that gave nothing: what was asked, and after how many steps of the server."""

    asked: tuple[Any, ...]
    steps: int
    claim: Claim
    wire: Wire | None
    born: int | None
    at: float


class Rests:
    """What the workers of one store know without asking. Sleepers are told of news; this is for news that got lost."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.forked()
        reset_when_forked(self)

    def forked(self) -> None:
        """Begin without knowing anything; what the parent knows is about its own connections."""
        self._rests: dict[str, Rest] = {}
        self._seen: Head | None = None
        self._seen_at = 0.0

    def found(self, ask: Ask, claim: Claim, steps: int) -> None:
        """A claim was answered."""
        self._seen = None
        if claim.jobs or claim.lost or claim.needs_room or claim.ask_again_at <= claim.now or self._clock.virtual:
            self._rests.pop(ask.worker, None)
        else:
            self._rests[ask.worker] = self._rest(ask, claim, steps)

    def _rest(self, ask: Ask, claim: Claim, steps: int) -> Rest:
        return Rest(_asked(ask), steps, claim, self._client.open_wire, self._client.born, time.monotonic())

    def forget(self, worker: str) -> None:
        self._rests.pop(worker, None)

    async def still_nothing(self, ask: Ask) -> Claim | None:
        """The same answer as the last time, if the server did nothing since then that could change it."""
        rest = self._rests.get(ask.worker)
        if rest is None or time.monotonic() - rest.at < LONG or rest.asked != _asked(ask):
            return None
        if rest.wire is not self._client.open_wire:
            return None  # the server may have begun a new life, and count its steps anew
        now = self._clock.now()
        if now >= rest.claim.ask_again_at:
            return None
        head = await self._head()
        if (head.steps, head.born) != (rest.steps, rest.born):
            return None
        return Claim(jobs=[], now=now, ask_again_at=rest.claim.ask_again_at)

    async def nothing_to_prune(self) -> bool:
        """True when the last prune, whoever did it, left nothing to do before some later instant."""
        if self._clock.virtual:
            return False
        recent = self._seen if time.monotonic() - self._seen_at < RECENT else None
        head = recent or await self._head()
        return head.steps == head.pruned_steps and self._clock.now() < head.prune_due

    async def _head(self) -> Head:
        blob = await self._client.command(b"GET", self._client.head, again=True)
        self._seen = head_of(blob)
        self._seen_at = time.monotonic()
        return self._seen


def head_of(blob: bytes | None) -> Head:
    """What the namespace's head says, also when there is none (any more)."""
    if not blob:
        return Head(-1, 0, 0, None)
    said = _decode_head(blob)
    return Head(said.steps, said.pruned_steps, said.prune_due, said.born or None)


def _asked(ask: Ask) -> tuple[Any, ...]:
    """What the answer depends on; which of its queues a worker names first does not matter when all are empty."""
    return frozenset(ask.queues), ask.slots, ask.tasks, ask.also, ask.room, ask.most
