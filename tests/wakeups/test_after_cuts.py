"""Sleepers that were cut off, and are reached again: they react at once to what another process does from then on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator

import pytest

from paceline.lifecycle.outage import LONGEST_PAUSE
from paceline.stores.postgres.listening import LOOK_SOON

from ..servers.fresh import database
from ..servers.postgres import Server as PostgresServer
from ..servers.redis import RedisServer, shared_redis
from .faults import NEVER_BACK
from .others import Process
from .reactions import at_once, reactions_in_turn
from .sleepers import Stage

DEEDS = [
    "a_job_arrives",
    "a_slot_that_another_queue_shares_is_freed",
    "a_queue_is_resumed",
    "an_operator_raises_a_limit",
    "an_active_job_is_cancelled",
    "a_permit_that_a_limiter_waits_for_is_given_back",
    "the_result_of_a_job_is_written",
]
FORGETFUL = [name for name in DEEDS if "slot" not in name and "result" not in name]
"""Deeds of somebody who need not remember what was done before."""
PATIENT = [name for name in DEEDS if "limiter" not in name]
"""Deeds for sleepers that wait through an outage; a limiter whose store is away says so."""
BACK = LONGEST_PAUSE / 1_000_000 + LOOK_SOON * 5
"""Seconds after which a worker that met an outage has asked again, and everybody has looked once more."""


def channels(kind: str) -> set[str]:
    """The connections on which the servers of these tests wake somebody now."""
    if kind == "postgres":
        found = database().execute("select pid from pg_stat_activity where application_name = 'paceline ears'")
        return {str(pid) for (pid,) in found}
    return set(re.findall(r"^id=(\d+) .* cmd=blpop ", shared_redis().ask("CLIENT", "LIST").decode(), re.MULTILINE))


def cut(kind: str) -> None:
    """End every channel, as a firewall or an operator does."""
    for each in channels(kind):
        if kind == "postgres":
            database().execute("select pg_terminate_backend(%s)", [int(each)])
        else:
            assert shared_redis().ask("CLIENT", "KILL", "ID", each) == b":1\r\n"


async def until(true: Callable[[], object], within: float = 20) -> None:
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110 - nobody tells what a server does
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", NEVER_BACK, indirect=True)
async def test_sleepers_react_at_once_after_their_channel_was_cut(stage: Stage, kind: str):
    async def cut_and_wait() -> None:
        before = channels(kind)
        cut(kind)
        await until(lambda: channels(kind) - before)
        await asyncio.sleep(LOOK_SOON * 5)

    seconds = await reactions_in_turn(stage, DEEDS, cut_and_wait)

    print(f"{kind}, cut: {[f'{each * 1000:.1f} ms' for each in seconds.values()]}")
    assert at_once(list(seconds.values())), seconds


@pytest.mark.parametrize("kind", NEVER_BACK, indirect=True)
async def test_nobody_reacts_at_once_whose_channel_was_cut_and_stays_away(
    stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch
):
    NEVER_BACK[kind](monkeypatch)

    async def cut_and_stay_away() -> None:
        assert channels(kind)
        cut(kind)
        await until(lambda: not channels(kind))
        await asyncio.sleep(LOOK_SOON * 5)

    seconds = await reactions_in_turn(stage, DEEDS, cut_and_stay_away, within=0.4)

    assert [name for name, each in seconds.items() if at_once([each])] == []


class Restarts:
    """A server of one's own; what was accepted is there again after a restart."""

    def __init__(self, kind: str) -> None:
        if kind == "postgres":
            self._postgres = PostgresServer({"synchronous_commit": "on"}).__enter__()
            self.url = self._postgres.url()
            self.stop, self.start = (lambda: self._postgres.stop("fast")), self._postgres.start
            self.remove: Callable[[], None] = self._postgres.__exit__
        else:
            redis = RedisServer("--appendonly", "yes", "--appendfsync", "always")
            redis.start()
            self.url, self.stop, self.start, self.remove = redis.url, redis.stop, redis.start, redis.remove


@pytest.fixture
def restarts(kind: str) -> Iterator[Restarts]:
    server = Restarts(kind)
    yield server
    server.remove()


@pytest.mark.parametrize("kind", NEVER_BACK, indirect=True)
async def test_sleepers_react_at_once_after_a_restart_of_the_server(
    restarts: Restarts, stage_at: Callable[[str], Stage], kind: str
):
    stage = stage_at(restarts.url)
    await stage.store.open()

    async def restart() -> None:
        await asyncio.to_thread(restarts.stop)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(restarts.start)
        await stage.other.does("find_the_server")
        await asyncio.sleep(BACK)

    seconds = await reactions_in_turn(stage, PATIENT, restart)

    print(f"{kind}, restarted: {[f'{each * 1000:.1f} ms' for each in seconds.values()]}")
    assert at_once(list(seconds.values())), seconds


@pytest.mark.parametrize("kind", ["sqlite", *NEVER_BACK], indirect=True)
async def test_sleepers_react_at_once_to_a_process_that_came_after_another_had_died(
    stage: Stage, process: Process, kind: str
):
    async def die() -> None:
        process.kill()

    seconds = await reactions_in_turn(stage, FORGETFUL, die)

    print(f"{kind}, another process: {[f'{each * 1000:.1f} ms' for each in seconds.values()]}")
    assert at_once(list(seconds.values())), seconds
