"""A listener that nobody needs any more ends, whatever it was doing when it was told so."""

from __future__ import annotations

import asyncio
from typing import Any

from paceline.stores import open_store
from paceline.stores.redis.wire import Wire

from ..servers.redis import empty_redis


async def test_a_listener_that_is_cancelled_as_the_server_answers_ends(monkeypatch):
    store = open_store(empty_redis())
    await store.open()
    before, loop, request = asyncio.all_tasks(), asyncio.get_running_loop(), Wire.request

    def answer_and_close(self: Wire, *words: Any) -> Any:
        if words != (b"PING",):
            return request(self, *words)
        answer = loop.create_future()

        def both() -> None:
            answer.set_result(b"PONG")
            listener.close()

        loop.call_soon(both)
        return answer

    monkeypatch.setattr(Wire, "request", answer_and_close)
    listener = store.listen(["line"], "worker")
    (hearing,) = [task for task in asyncio.all_tasks() - before if "_hear" in repr(task.get_coro())]

    await asyncio.wait([hearing], timeout=5)

    assert hearing.done()
    await store.close()
