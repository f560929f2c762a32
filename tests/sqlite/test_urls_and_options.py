"""Where the file is, and what may be said about it: URLs, durability, namespaces, several stores on one file."""

from __future__ import annotations

import asyncio
import os
from urllib.parse import quote

import pytest

from paceline import App, ConfigError, Limit, Queue, Rate, Worker, open_store
from paceline.stores import shared_store
from paceline.stores.sqlite import connect

from .helpers import Done, start, working


@pytest.fixture(autouse=True)
def waits_for_the_disk(monkeypatch) -> None:
    """Here the settings are as they are for users."""
    monkeypatch.setitem(connect.DURABILITY, "normal", "NORMAL")


def setting(store, name: str) -> object:
    """What the connection of a store says about itself."""
    return store._writer._db.execute(f"PRAGMA {name}").fetchone()[0]


# where


async def test_three_slashes_are_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///jobs.db")

    await Queue("line", store=store).add("work")
    await store.close()

    assert (tmp_path / "jobs.db").exists()


async def test_four_slashes_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")

    await Queue("line", store=store).add("work")
    await store.close()

    assert (tmp_path / "jobs.db").exists()


async def test_a_relative_url_stays_with_its_file_when_the_program_changes_its_folder(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    store = open_store("sqlite:///jobs.db")
    queue = Queue("line", store=store)
    await queue.add("work")

    monkeypatch.chdir(tmp_path / "there")
    counts = await queue.counts()
    await store.close()

    assert counts["waiting"] == 1
    assert os.listdir(tmp_path / "there") == []


@pytest.mark.parametrize("name", ["with space.db", "with%20percent.db", "ümläut.db", "a+b&c=d.db", "jobs"])
async def test_a_file_may_have_any_name_if_it_is_quoted(tmp_path, name):
    store = open_store(f"sqlite:///{tmp_path}/{quote(name)}")
    await store.open()
    await store.close()

    assert os.listdir(tmp_path) == [name]


async def test_a_hash_mark_is_part_of_the_name_or_refused_but_never_cut_off(tmp_path):
    try:
        store = open_store(f"sqlite:///{tmp_path}/jobs#1.db")
    except ConfigError:
        return
    await store.open()
    await store.close()

    assert os.listdir(tmp_path) == ["jobs#1.db"]


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:", "sqlite:///", "sqlite://jobs.db", "sqlite://host/jobs.db", "sqlite:///folder/"],
)
def test_a_broken_url_is_refused_with_both_right_forms(url):
    with pytest.raises(ConfigError, match=r"sqlite:///jobs\.db .*sqlite:////var/jobs\.db") as error:
        open_store(url)

    assert (error.value.option, error.value.value) == ("url", url)


def test_a_database_in_memory_is_refused_and_the_memory_store_named():
    with pytest.raises(ConfigError, match="memory://"):
        open_store("sqlite:///:memory:")


def test_making_a_store_touches_no_disk(tmp_path):
    open_store(f"sqlite:///{tmp_path}/jobs.db")
    Queue("line", store=open_store(f"sqlite:///{tmp_path}/missing/jobs.db"))

    assert os.listdir(tmp_path) == []


async def test_the_same_url_is_the_same_store_in_one_process_and_open_store_a_new_one(path):
    url = f"sqlite:///{path}"

    assert shared_store(url) is shared_store(url)
    assert open_store(url) is not open_store(url)


# options


@pytest.mark.parametrize(
    ("query", "options", "synchronous"),
    [
        ("", {}, 2),
        ("", {"durability": "full"}, 2),
        ("", {"durability": "normal"}, 1),
        ("?durability=normal", {}, 1),
        ("?durability=full", {}, 2),
        ("?durability=normal", {"durability": "full"}, 1),
    ],
    ids=str,
)
async def test_durability_is_what_sqlite_calls_synchronous(path, query, options, synchronous):
    store = open_store(f"sqlite:///{path}{query}", **options)
    await store.open()
    found = setting(store, "synchronous"), setting(store, "journal_mode")
    await store.close()

    assert found == (synchronous, "wal")


@pytest.mark.parametrize("durability", ["", "off", "FULL", None, True, 2, ["full"]])
def test_a_wrong_durability_is_refused_with_the_right_ones(path, durability):
    with pytest.raises(ConfigError, match="durability"):
        open_store(f"sqlite:///{path}", durability=durability)


@pytest.mark.parametrize("query", ["durability=", "durability=fast", "journal=wal", "mode=ro", "durability=full&x=1"])
def test_a_wrong_option_in_the_url_is_refused(path, query):
    with pytest.raises(ConfigError, match="durability"):
        open_store(f"sqlite:///{path}?{query}")


def test_an_unknown_option_is_refused_by_its_name(path):
    with pytest.raises(ConfigError, match="timeout"):
        open_store(f"sqlite:///{path}", timeout=5)


# several applications, several stores


async def test_namespaces_keep_two_applications_in_one_file_apart(opener):
    one, two = (opener(namespace=name) for name in ("one", "two"))
    await one.set_limits([Limit("api", Rate(1, per="1h"))])
    queues = [Queue("line", store=store) for store in (one, two)]
    jobs = [
        await queue.add("work", store.namespace, job_id="same") for queue, store in zip(queues, (one, two), strict=True)
    ]
    await queues[0].pause()

    assert [job.data for job in jobs] == ["one", "two"]
    assert [limit.name for limit in await two.limits()] == []
    assert [len(await start(store)) for store in (one, two)] == [0, 1]
    assert [(await queue.counts())["waiting"] for queue in queues] == [1, 0]
    assert [len(await queue.starts()) for queue in queues] == [0, 1]

    await queues[1].obliterate(force=True)
    assert (await queues[0].get("same")).data == "one"


async def test_a_namespace_of_an_app_is_the_namespace_of_its_store(path):
    app, other = App(f"sqlite:///{path}", namespace="one"), App(f"sqlite:///{path}", namespace="two")
    await app.queue("line").add("work")

    counts = [(await each.queue("line").counts())["waiting"] for each in (app, other)]
    for each in (app, other):
        await each.store.close()

    assert counts == [1, 0]


async def test_two_stores_on_one_file_in_one_process_share_jobs_limits_and_wake_ups(opener):
    one, two = opener(), opener()
    done = Done()
    queue = Queue("line", store=one, limits=[Rate(2, per="1h")])

    async with working(Worker("line", done, store=two, concurrency=5)):
        jobs = await queue.add_many([("work", number) for number in range(4)])
        assert await jobs[0].result(timeout=10) == 0
        assert await jobs[1].result(timeout=10) == 1

    assert done.data == [0, 1]
    assert [await start(store, 5) for store in (one, two)] == [[], []]


async def test_two_stores_on_one_file_write_at_the_same_time_and_lose_nothing(opener):
    stores = [opener() for _ in range(4)]
    queues = [Queue("line", store=store) for store in stores]

    await asyncio.gather(*(queue.add("work", number) for number in range(25) for queue in queues))

    assert [(await queue.counts())["waiting"] for queue in queues] == [100] * 4


async def test_closing_one_of_two_stores_leaves_the_other_working(opener):
    one, two = opener(), opener()
    for store in (one, two):
        await Queue("line", store=store).add("work")

    await one.close()

    assert (await Queue("line", store=two).counts())["waiting"] == 2
    assert len(await start(two, 5)) == 2
