"""What the log says while the server is away: one warning, one line when it is back."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from paceline import Job, Queue, Worker
from paceline.errors import StoreUnavailable
from paceline.stores import open_store

STORE = "paceline.store"


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == STORE]


async def until_back(queue: Queue) -> None:
    for _ in range(200):
        try:
            await queue.counts()
            return
        except StoreUnavailable:
            await asyncio.sleep(0.02)
    raise AssertionError("the server was not found again")


async def test_one_warning_for_an_outage_and_one_line_when_it_is_over(new_server, caplog):
    caplog.set_level(logging.INFO)
    server = new_server("--appendonly", "yes", "--appendfsync", "always")
    stores = open_store(server.url), open_store(server.url)
    queue = Queue("line", store=stores[0])

    async def handler(job: Job[None]) -> None: ...

    async with Worker("line", handler, store=stores[0]), Worker("line", handler, store=stores[0]):
        job = await queue.add("work", delay="1h")
        waiting = asyncio.create_task(job.result())
        await asyncio.sleep(0.1)
        for _ in range(2):
            caplog.clear()
            server.kill()
            await asyncio.sleep(1)
            with pytest.raises(StoreUnavailable):
                await queue.counts()
            server.start()
            await until_back(queue)
            await asyncio.sleep(1.2)
            (lost, text), (back, again) = lines(caplog)
            assert (lost, back) == (logging.WARNING, logging.INFO)
            assert re.fullmatch(rf"lost the connection to {server.url} \(.+\); retrying", text)
            assert re.fullmatch(rf"connected to {server.url} again after \d+\.\ds", again)
        waiting.cancel()
    caplog.clear()
    for store in stores:
        await store.close()
    assert lines(caplog) == []


async def test_a_server_that_was_never_there_is_an_error_and_no_log(caplog):
    store = open_store("redis://127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable, match=r"redis://127\.0\.0\.1:1/0 cannot be reached"):
        await store.open()
    await store.close()
    assert lines(caplog) == []


async def test_a_connection_that_idled_too_long_is_opened_again_without_a_word(new_server, caplog):
    caplog.set_level(logging.INFO)
    server = new_server()
    store = open_store(server.url)
    await store.counts("line")
    caplog.clear()
    server.ask("CLIENT", "KILL", "TYPE", "normal")
    await asyncio.sleep(0.1)
    await store.counts("line")
    await store.close()
    assert lines(caplog) == []
