"""`rediss://`: the same over TLS, with a certificate that is checked. The key in `tls/` is for these tests alone."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from paceline import Job, Queue, Worker
from paceline.errors import StoreUnavailable
from paceline.stores import open_store

from .proxy import Proxy

TLS = Path(__file__).with_name("tls")


@pytest.fixture
def port(new_server):
    """A server behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    proxy = Proxy(new_server().port, context)
    yield proxy.port
    proxy.close()


async def test_jobs_run_over_tls(port):
    url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={TLS / 'cert.pem'}"
    store, other = open_store(url), open_store(url)
    queue = Queue("line", store=other)
    done: dict[int, int] = {}
    everything = asyncio.Event()

    async def handler(job: Job[list[object]]) -> int:
        number, text = job.data
        done[number] = len(text)
        if len(done) == 60:
            everything.set()
        return number

    async with Worker("line", handler, store=store, concurrency=20):
        # More than one record of TLS holds, in one request and in one answer.
        await queue.add_many([("work", [number, "x" * 20_000]) for number in range(50)])
        jobs = await asyncio.gather(*(queue.add("work", [number, "y"]) for number in range(50, 60)))
        await asyncio.wait_for(everything.wait(), 20)
        assert [await job.result(timeout=5) for job in jobs] == list(range(50, 60))

    assert done == dict.fromkeys(range(50), 20_000) | dict.fromkeys(range(50, 60), 1)
    for each in (store, other):
        await each.close()


async def test_a_certificate_that_nobody_vouches_for_is_refused(port):
    store = open_store(f"rediss://127.0.0.1:{port}/0")

    with pytest.raises(StoreUnavailable, match=r"cannot be reached.*certificate"):
        await store.open()
    await store.close()
