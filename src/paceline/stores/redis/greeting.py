"""What is said to a server before anything is asked of it: which life of it we know, and what we saw counted."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import Any

import msgspec
import redis

from paceline.clock import Clock
from paceline.errors import ConfigError, StoreError, StoreUnavailable
from paceline.forks import reset_when_forked
from paceline.stores.redis.client import Client
from paceline.stores.redis.refusals import refusal
from paceline.stores.redis.remembered import Remembered
from paceline.stores.redis.wire import Wire

log = logging.getLogger("paceline.store")

EVERY = 20.0
"""Seconds after which a client that claims says again that it does."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Greeting:
    """One client among all of a namespace. The server holds rates until all who could have lost starts are heard."""

    def __init__(self, client: Client, clock: Clock, remembered: Remembered, *, trust_restart: bool) -> None:
        self.seen = 0
        """The most starts that any answer said were counted so far."""
        self._client = client
        self._remembered = remembered
        self._virtual = clock if clock.virtual else None
        self._trusts = trust_restart
        self._run_id: str | None = None
        self._warned: set[str] = set()
        client.greet = self.greet
        self.forked()
        reset_when_forked(self)

    def forked(self) -> None:
        """A child process is a client of its own."""
        self.session = uuid.uuid4().hex
        self._claims = False
        self._said_at = 0.0

    async def greet(self, wire: Wire) -> None:
        """Look at the server, warn of what it cannot promise, and introduce ourselves."""
        facts = facts_of(await wire.request(b"INFO"))
        self._look_at(facts)
        if facts.get("role") in ("slave", "replica"):
            return  # it knows what its primary told it, our steps too; what would write is refused by the server
        safe = await self._loses_nothing(wire, facts)
        await self._client.load_if_missing(wire)
        run_id = facts.get("run_id", "")
        said: dict[str, Any] = {
            "run_id": run_id,
            "knew": self._run_id,
            "knew_born": self._client.born,
            "uptime": int(facts.get("uptime_in_seconds", 0)),
            "keeps_a_log": facts.get("aof_enabled") == "1",
            "loses_nothing": safe,
            "trusts": self._trusts,
            # What we saw in the life before: in this one others count on.
            "seen": 0 if self._run_id == run_id else self.seen,
        }
        _, charges, lost_at, born = await self._say(wire, said)
        emptied, restarted = self._client.born not in (None, born), self._run_id not in (None, run_id)
        if emptied or restarted:
            await self._say_all(wire)
            self._tell_of(emptied, lost_at)
        if self._run_id != run_id or emptied:
            self._run_id, self.seen = run_id, charges
        self._client.born = born or None

    async def _say_all(self, wire: Wire) -> None:
        """Limits and workers of this program, to a server that may have forgotten them."""
        for step, wanted in self._remembered.steps():
            await wire.request(b"FCALL", self._client.function(step), 1, self._client.head, self._encoded(wanted))

    def _tell_of(self, emptied: bool, lost_at: Any) -> None:
        held = "; rates are held until lost starts would no longer count" if lost_at else ""
        if emptied:
            log.warning(
                "%s lost everything it knew (restarted without its data, or emptied): jobs, pauses, holds and "
                "overrides are gone; the limits and workers of this program are declared again%s",
                self._client.shown,
                held,
            )
        elif held:
            log.warning("%s began a new life and may have lost starts%s", self._client.shown, held)

    async def claims(self) -> None:
        """This client is about to start something: others must know that it may have seen what a server forgot."""
        now = time.monotonic()
        if self._claims and now - self._said_at < EVERY:
            return
        self._claims, self._said_at = True, now
        await self._client.command(*self._words({"seen": self.seen}), again=True)

    def heard(self, charges: int) -> None:
        """An answer says how many starts were counted so far."""
        if charges > self.seen:
            self.seen = charges

    async def bye(self) -> None:
        """This client starts nothing any more."""
        wire = self._client.open_wire
        if self._claims and wire is not None and self._run_id is not None:
            self._claims = False
            try:
                async with asyncio.timeout(1):
                    await self._say(wire, {"seen": self.seen, "bye": True})
            except (StoreError, redis.RedisError, TimeoutError):
                log.info("the server could not be told that a client goes")

    async def _say(self, wire: Wire, said: dict[str, Any]) -> Any:
        answer = await wire.request(*self._words(said))
        if answer[0] == b"refused":
            raise refusal(_decode(answer[1]), said)
        return _decode(answer[0])

    def _words(self, said: dict[str, Any]) -> tuple[Any, ...]:
        said |= {"session": self.session, "claims": self._claims}
        return b"FCALL", self._client.function("hello"), 1, self._client.head, self._encoded(said)

    def _encoded(self, said: dict[str, Any]) -> bytes:
        return _encode(said if self._virtual is None else {**said, "now": self._virtual.now()})

    def _look_at(self, facts: dict[str, str]) -> None:
        if facts.get("loading") == "1":
            raise StoreUnavailable(f"{self._client.shown} is loading its data")
        major = facts.get("redis_version", "7").split(".")[0]
        if major.isdigit() and int(major) < 7:
            raise StoreError(f"{self._client.shown} is Redis {facts['redis_version']}; Paceline needs 7.0 or newer")
        policy = facts.get("maxmemory_policy", "noeviction")
        if policy != "noeviction" and facts.get("maxmemory", "0") != "0":
            self._warn(
                f"maxmemory-policy is {policy!r}: when memory is full this server throws jobs and limits away; "
                "set it to noeviction"
            )
        if facts.get("aof_enabled") == "0":
            self._warn(
                "this server keeps no log of what it is told (appendonly no): "
                "a restart loses jobs and starts since its last snapshot, or all of them"
            )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s: %s", self._client.shown, text)

    async def _loses_nothing(self, wire: Wire, facts: dict[str, str]) -> bool:
        """True when the server answers only after it has written."""
        if facts.get("aof_enabled") != "1":
            return False
        if facts.get("master_replid2", "").strip("0"):
            return False  # it was a replica: what it writes is safe, what it was not sent is not
        try:
            answer = await wire.request(b"CONFIG", b"GET", b"appendfsync")
        except redis.ResponseError:
            return False  # not allowed to ask: expect the usual
        return bool(answer) and answer[-1] == b"always"


def facts_of(info: bytes) -> dict[str, str]:
    """What INFO says, by name."""
    lines = (line.partition(":") for line in info.decode().splitlines())
    return {name: value for name, _, value in lines if value}


async def check_fsync(wire: Wire, wait: int) -> None:
    """Refuse a server that cannot say when something is on disk."""
    try:
        await wire.request(b"WAITAOF", 0, 0, wait)
    except redis.ResponseError as error:
        raise ConfigError(
            f"durability='fsync' is wrong: this server has no WAITAOF; it needs Redis 7.2 or Valkey ({error})",
            option="durability",
            value="fsync",
        ) from error
