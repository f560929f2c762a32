"""What a namespace was written with, and what a server knows of our steps: other formats, old and lost libraries."""

from __future__ import annotations

import msgspec
import pytest
from redis import Redis

from paceline.errors import SchemaMismatch
from paceline.job import NewJob
from paceline.stores import open_store
from paceline.stores.interface import Ask, Finish, Outcome, Store
from paceline.stores.redis.layout import FORMAT
from paceline.stores.redis.scripts import RELEASE, library

from ..servers.redis import empty_redis

HEAD = "{paceline:default}:head"
ANY = "#!lua name={name}\nredis.register_function('{name}_f', function() return 1 end)"


def head_of(url: str) -> list[object]:
    with Redis.from_url(url) as server:
        found: list[object] = msgspec.msgpack.decode(server.get(HEAD), strict=False)
        return found


def write_head(url: str, head: object) -> bytes:
    text = msgspec.msgpack.encode(head)
    with Redis.from_url(url) as server:
        server.set(HEAD, text)
    return text


async def claim(store: Store) -> list[str]:
    found = await store.claim(Ask(queues=("line",), slots=5, worker="w", lease=60_000_000))
    return [job.id for job in found.jobs]


async def test_the_head_of_a_namespace_has_the_number_of_its_format():
    url = empty_redis()
    store = open_store(url)
    await store.insert([NewJob("a", "line", "work")])

    assert head_of(url)[-1] == FORMAT
    await store.close()


async def test_a_namespace_of_the_release_before_is_taken_over_at_once():
    url = empty_redis()
    store = open_store(url)
    await store.insert([NewJob("a", "line", "work"), NewJob("b", "line", "work")])
    await store.close()
    write_head(url, head_of(url)[:-1])

    again = open_store(url)
    assert await claim(again) == ["a", "b"]
    assert head_of(url)[-1] == FORMAT
    await again.close()


@pytest.mark.parametrize("number", [FORMAT + 1, 99])
async def test_a_newer_format_is_refused_and_left_as_it_is(number):
    url = empty_redis()
    store = open_store(url)
    await store.insert([NewJob("a", "line", "work")])
    await store.close()
    text = write_head(url, [*head_of(url)[:-1], number])

    newer = open_store(url)
    for call in (newer.open(), newer.insert([NewJob("b", "line", "work")]), newer.counts("line"), claim(newer)):
        with pytest.raises(SchemaMismatch, match=f"format {number}.*upgrade this program"):
            await call
    with Redis.from_url(url) as server:
        assert server.get(HEAD) == text
    await newer.close()


async def test_a_program_that_runs_while_the_format_changes_stops():
    url = empty_redis()
    store = open_store(url)
    await store.insert([NewJob("a", "line", "work")])
    text = write_head(url, [*head_of(url)[:-1], FORMAT + 1])

    with pytest.raises(SchemaMismatch):
        await claim(store)
    with pytest.raises(SchemaMismatch):
        await store.counts("line")
    with Redis.from_url(url) as server:
        assert server.get(HEAD) == text
    await store.close()


@pytest.mark.parametrize("what", ["words of somebody else", ["a", "list"], 7])
async def test_what_is_not_ours_is_refused_and_left_as_it_is(what):
    url = empty_redis()
    text = write_head(url, what)
    store = open_store(url)

    with pytest.raises(SchemaMismatch, match="is not Paceline's"):
        await store.insert([NewJob("a", "line", "work")])
    with Redis.from_url(url) as server:
        assert server.get(HEAD) == text
    await store.close()


async def test_a_head_that_is_no_string_is_refused():
    url = empty_redis()
    with Redis.from_url(url) as server:
        server.rpush(HEAD, "theirs")
    store = open_store(url)

    with pytest.raises(SchemaMismatch, match="is not Paceline's"):
        await store.open()
    await store.close()


def libraries(url: str) -> set[str]:
    with Redis.from_url(url) as server:
        return {found[1].decode() for found in server.function_list()}


async def test_libraries_of_neighbours_stay_and_older_ones_go(new_server):
    server = new_server()
    before, older = f"paceline_{RELEASE - 1}_0123456789ab", "paceline_0_0123456789ab"
    after, unnumbered, theirs = f"paceline_{RELEASE + 1}_0123456789ab", "paceline_0123456789ab", "paceline_tools"
    with Redis.from_url(server.url) as client:
        for name in (before, older, after, unnumbered, theirs):
            client.function_load(ANY.format(name=name))
    store = open_store(server.url)

    await store.insert([NewJob("a", "line", "work")])

    assert libraries(server.url) == {library().name, before, after, theirs} | ({unnumbered} if RELEASE <= 2 else set())
    await store.close()


async def test_a_library_that_was_flushed_is_loaded_again(new_server):
    server = new_server()
    store = open_store(server.url)
    await store.insert([NewJob("a", "line", "work")])
    with Redis.from_url(server.url) as client:
        client.function_flush()

    found = await store.claim(Ask(queues=("line",), slots=5, worker="w", lease=60_000_000))
    with Redis.from_url(server.url) as client:
        client.function_flush()
    lost = await store.finish([Finish(id="a", fence=found.jobs[0].fence, outcome=Outcome.COMPLETED)])

    assert (lost, (await store.counts("line"))["completed"]) == ([], 1)
    await store.close()


async def test_a_library_that_was_replaced_by_hand_is_put_right(new_server):
    server = new_server()
    store = open_store(server.url)
    await store.insert([NewJob("a", "line", "work")])
    with Redis.from_url(server.url) as client:
        client.function_load(ANY.format(name=library().name), replace=True)

    assert await claim(store) == ["a"]
    await store.close()
