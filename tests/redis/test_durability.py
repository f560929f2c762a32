"""What a restart may lose, and that it breaks no rate: limits are held where lost starts would still count."""

from __future__ import annotations

import asyncio
import time

import pytest

from paceline.errors import ConfigError, StoreError
from paceline.job import NewJob
from paceline.limits import Concurrency, Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask, Finish, Outcome

LOG = ("--appendonly", "yes")
REASON = "may have lost starts"


def jobs(*ids: str, task: str = "work") -> list[NewJob]:
    return [NewJob(id, "line", task) for id in ids]


async def claim(store, slots: int = 1, worker: str = "w"):
    return await store.claim(Ask(queues=("line",), slots=slots, worker=worker, lease=60_000_000))


async def test_a_server_that_always_writes_first_is_not_held(new_server):
    server = new_server(*LOG, "--appendfsync", "always")
    store = open_store(server.url)
    await store.set_limits([Limit("all", Rate(2, per="1h"))])
    await store.insert(jobs("a", "b"))
    await claim(store)

    server.kill()
    server.start()

    opened_again = open_store(server.url)
    answer = await claim(opened_again)

    assert [job.id for job in answer.jobs] == ["b"]
    await store.close()
    await opened_again.close()


async def test_a_restart_that_lost_nothing_is_not_held(new_server):
    server = new_server(*LOG, "--appendfsync", "everysec")
    store = open_store(server.url)
    await store.set_limits([Limit("all", Rate(5, per="1h"))])
    await store.insert(jobs("a", "b"))
    assert len((await claim(store)).jobs) == 1

    server.stop()  # in order: it writes everything
    server.start()

    # The only client that could have seen a lost start says that there is none.
    assert [job.id for job in (await claim(store)).jobs] == ["b"]
    await store.close()


async def test_rates_are_held_while_a_client_that_may_know_of_lost_starts_is_missing(new_server):
    server = new_server(*LOG)
    store, missing = open_store(server.url), open_store(server.url)
    await store.set_limits([Limit("all", Rate(5, per="2s")), Limit("slots", Concurrency(3))])
    await store.insert(jobs("a", "b", "c"))
    assert len((await claim(store)).jobs) == 1
    assert len((await claim(missing, worker="v")).jobs) == 1

    server.stop()
    server.start()
    held = await claim(store)
    usage = await store.usage("all", None)
    text = (await store.standing("c")).keys[0]

    assert held.jobs == []
    assert held.now < held.ask_again_at <= held.now + 3_000_000
    assert (usage.hold_until, REASON in (usage.hold_reason or "")) == (held.ask_again_at, True)
    assert text.hold_until == held.ask_again_at
    await asyncio.sleep((held.ask_again_at - held.now) / 1_000_000 + 0.01)
    assert [job.id for job in (await claim(store)).jobs] == ["c"]
    await missing.close()
    await store.close()


async def test_the_hold_ends_when_the_missing_client_is_heard(new_server):
    server = new_server(*LOG)
    store, other = open_store(server.url), open_store(server.url)
    await store.set_limits([Limit("all", Rate(5, per="1h"))])
    await store.insert(jobs("a", "b", "c"))
    await claim(store)
    await claim(other, worker="v")

    server.stop()
    server.start()
    before = (await claim(store)).jobs
    await other.counts("line")

    assert (before, [job.id for job in (await claim(store)).jobs]) == ([], ["c"])
    await other.close()
    await store.close()


@pytest.mark.parametrize("start_at", [0.0, 0.8], ids=["early in a second", "late in a second"])
async def test_lost_starts_break_no_rate(new_server, start_at):
    server = new_server("--appendonly", "no")
    store = open_store(server.url)
    limits = [Limit("all", Rate(3, per="2s"))]
    await store.set_limits(limits)
    await store.insert(jobs(*"abc"))
    started = [job.started_at for job in (await claim(store, 3)).jobs]

    server.kill()  # nothing was ever written
    await asyncio.sleep((start_at - time.time()) % 1)
    server.start()
    await asyncio.sleep((1 - time.time()) % 1 if start_at else 0)  # "up for a second" after a moment
    await store.set_limits(limits)
    await store.insert(jobs(*"def"))
    while len(started) < 6:
        answer = await claim(store, 3)
        started += [job.started_at for job in answer.jobs]
        await asyncio.sleep(max(answer.ask_again_at - answer.now, 1000) / 1_000_000 if not answer.jobs else 0)

    assert started[3] - started[0] >= 2_000_000
    await store.close()


async def test_rates_are_held_when_anyone_comes_back_who_knew_the_server_before_it_forgot_everything(new_server):
    server = new_server("--appendonly", "no")
    older, limits = open_store(server.url), [Limit("all", Rate(5, per="4s"))]
    await older.set_limits(limits)
    await older.insert(jobs(*"abc"))
    (lost, *_) = (await claim(older, 3)).jobs

    server.kill()
    server.start()
    newer = open_store(server.url)
    await newer.set_limits(limits)
    await newer.insert(jobs(*"de"))
    # Nobody who is here can know that there was an earlier life.
    assert len((await claim(newer)).jobs) == 1
    await older.counts("line")
    held = await claim(newer)
    usage = await newer.usage("all", None)

    assert held.jobs == []
    assert lost.started_at + 4_000_000 <= held.ask_again_at <= held.now + 5_000_000
    assert REASON in (usage.hold_reason or "")
    # Whoever else comes back holds nothing anew.
    await older.close()
    third = open_store(server.url)
    assert (await claim(third)).ask_again_at == held.ask_again_at
    await asyncio.sleep((held.ask_again_at - held.now) / 1_000_000 + 0.01)
    assert len((await claim(newer)).jobs) == 1
    for store in (newer, third):
        await store.close()


async def test_a_namespace_that_outlived_its_first_server_is_held_like_any_other(new_server):
    server = new_server(*LOG)
    first, missing = open_store(server.url), open_store(server.url)
    await first.set_limits([Limit("all", Rate(5, per="1h"))])
    await first.insert(jobs(*"abc"))
    await claim(first)
    await claim(missing, worker="v")
    await first.close()

    server.kill()
    server.start()
    fresh = open_store(server.url)

    assert (await claim(fresh, worker="f")).jobs == []
    await fresh.close()
    await missing.close()


async def test_a_start_that_was_forgotten_proves_nothing(new_server):
    server = new_server(*LOG, "--appendfsync", "no", "--no-appendfsync-on-rewrite", "yes")
    store = open_store(server.url)
    await store.insert(jobs("a"))
    (zombie,) = (await claim(store)).jobs
    await store.finish([Finish(id="a", fence=zombie.fence, outcome=Outcome.RELEASED)])

    server.stop()
    server.start()
    (again,) = (await claim(store)).jobs

    assert again.fence > zombie.fence + 1000
    assert await store.finish([Finish(id="a", fence=zombie.fence + 1, outcome=Outcome.COMPLETED)]) == ["a"]
    await store.close()


async def test_trusting_a_restart_holds_nothing(new_server):
    server = new_server(*LOG)
    store, missing = open_store(server.url, trust_restart=True), open_store(server.url)
    await store.set_limits([Limit("all", Rate(5, per="1h"))])
    await store.insert(jobs("a", "b"))
    await claim(missing, worker="v")

    server.stop()
    server.start()

    assert [job.id for job in (await claim(store)).jobs] == ["b"]
    await store.close()
    await missing.close()


async def refuses_fsync(server, store) -> bool:
    """True when the server is too old to say what is on disk, and the store says so instead of promising it."""
    if b"waitaof" in server.ask("COMMAND", "INFO", "WAITAOF"):
        return False
    with pytest.raises(ConfigError, match=r"needs Redis 7\.2"):
        await store.open()
    await store.close()
    return True


async def test_durability_fsync_answers_when_it_is_on_disk(new_server):
    server = new_server(*LOG, "--appendfsync", "everysec")
    store = open_store(server.url, durability="fsync")
    if await refuses_fsync(server, store):
        return
    await store.open()
    await store.insert(jobs("a"))

    server.kill()
    server.start()

    assert [job.id for job in await store.get(["a"])] == ["a"]
    await store.close()


async def test_durability_fsync_needs_a_server_that_writes(new_server):
    server = new_server("--appendonly", "no")
    store = open_store(server.url, durability="fsync")
    if await refuses_fsync(server, store):
        return

    with pytest.raises(StoreError, match="appendonly"):
        await store.insert(jobs("a"))
    await store.close()
