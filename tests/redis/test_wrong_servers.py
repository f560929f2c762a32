"""Wrong addresses, passwords, rights and servers: the error says what to do, and nothing is half done."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import pytest

from paceline import Concurrency, Job, Queue, Worker
from paceline.errors import ConfigError, MissingExtra, StoreError, StoreUnavailable
from paceline.job import NewJob
from paceline.limits import Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask, Finish, Outcome

from ..servers.redis import free_port


async def test_nobody_listens_there():
    store = open_store(f"redis://127.0.0.1:{free_port()}/0")

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await store.open()
    await store.close()


async def test_an_address_that_makes_no_sense():
    with pytest.raises(ConfigError, match="url="):
        open_store("redis://host:port/0")


def test_an_option_that_does_not_exist():
    with pytest.raises(ConfigError, match="colour"):
        open_store("redis://127.0.0.1/0", colour="red")
    with pytest.raises(ConfigError, match="durability"):
        open_store("redis://127.0.0.1/0", durability="perhaps")


def test_without_the_package_the_error_has_the_install_command(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("paceline.stores.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)

    with pytest.raises(MissingExtra, match=r"pip install 'paceline\[redis\]'"):
        open_store("redis://127.0.0.1/0")


async def test_a_wrong_password_is_named_and_not_shown(new_server):
    server = new_server("--requirepass", "right")
    store = open_store(server.url.replace("redis://", "redis://:wrong@"))

    with pytest.raises(StoreError, match="refused the user or password") as failed:
        await store.open()
    assert "wrong@" not in repr(store) + str(failed.value)
    right = open_store(server.url.replace("redis://", "redis://:right@"))
    await right.open()
    await right.close()
    await store.close()


async def test_a_user_without_rights_is_told_which(new_server):
    server = new_server()
    server.ask("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+@connection", "+info")
    store = open_store(server.url.replace("redis://", "redis://reader:secret@"))

    with pytest.raises(StoreError, match="may not do what Paceline needs"):
        await store.insert([NewJob("a", "line", "work")])
    await store.close()


def rights_in_the_docs() -> str:
    """The one line of the reference page that lists what a user may do."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "redis.md").read_text()
    (found,) = re.findall(r"`(~\{paceline:\*\}\* [^`]+)`", page)
    return found


async def test_the_rights_in_the_docs_are_enough(new_server, caplog):
    server = new_server("--appendonly", "yes")
    server.ask("ACL", "SETUSER", "app", "on", ">secret", *rights_in_the_docs().split())
    store = open_store(server.url.replace("redis://", "redis://app:secret@"))
    queue = Queue("line", store=store, limits=[Rate(100, per="1s"), Limit("tenant", Concurrency(2), by="group")])

    async def handler(job: Job[int]) -> int:
        await job.progress(50)
        return job.data

    with caplog.at_level(logging.INFO, "paceline"):
        async with Worker("line", handler, store=store, concurrency=3):
            jobs = [await queue.add("work", number, group=f"g{number % 2}") for number in range(6)]
            assert [await job.result(timeout=5) for job in jobs] == list(range(6))
            waiting = await queue.add("work", 7, delay="1h")
            await queue.pause(task="work")
            assert len(await queue.list("completed")) == 6
            assert "delayed" in str(await queue.explain(waiting.id))
            await waiting.cancel()
            await store.prune()
            await queue.obliterate(force=True)
    assert "NOPERM" not in caplog.text
    await store.close()


async def test_a_read_only_replica_is_refused(new_server):
    primary = new_server()
    replica = new_server("--replicaof", f"127.0.0.1 {primary.port}")
    store = open_store(replica.url)

    with pytest.raises(StoreUnavailable, match="read-only replica"):
        await store.insert([NewJob("a", "line", "work")])
    await store.close()


async def test_when_memory_is_full_nothing_is_added_but_ends_go_through(new_server):
    server = new_server()
    store = open_store(server.url)
    await store.set_limits([Limit("all", Rate(100, per="1s"))])
    await store.insert([NewJob(f"job {n}", "line", "work") for n in range(20)])
    server.ask("CONFIG", "SET", "maxmemory", "1mb")

    with pytest.raises(StoreError, match="memory is full"):
        await store.insert([NewJob("one more", "line", "work", data=b"x" * 1000)])
    claim = await store.claim(Ask(queues=("line",), slots=20, worker="w", lease=60_000_000))
    lost = await store.finish([Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in claim.jobs])

    assert (len(claim.jobs), lost) == (20, [])
    assert (await store.counts("line"))["completed"] == 20
    server.ask("CONFIG", "SET", "maxmemory", "0")
    await store.insert([NewJob("one more", "line", "work")])
    await store.close()


async def test_a_server_that_may_throw_jobs_away_is_warned_of(new_server, caplog):
    server = new_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    store = open_store(server.url)

    with caplog.at_level(logging.WARNING, "paceline.store"):
        await store.open()

    assert "allkeys-lru" in caplog.text
    assert "appendonly no" in caplog.text
    await store.close()


async def test_a_good_server_is_not_warned_of(new_server, caplog):
    server = new_server("--appendonly", "yes")
    store = open_store(server.url)

    with caplog.at_level(logging.WARNING, "paceline.store"):
        await store.open()

    assert caplog.text == ""
    await store.close()
