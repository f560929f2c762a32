"""More has come than one claim takes in: the next ones go on, nobody starts before his turn, nothing is missed."""

from __future__ import annotations

import psycopg

from paceline.job import NewJob
from paceline.stores.interface import Ask, Claim
from paceline.stores.postgres.store import PostgresStore

NUMBER = 1300
AT_ONCE = 500


def jobs(*names: str) -> list[NewJob]:
    return [NewJob(name, "line", "work", group=name) for name in names]


async def claim(store: PostgresStore, slots: int = 1) -> Claim:
    return await store.claim(Ask(queues=("line",), slots=slots, worker="w", lease=60_000_000))


async def test_a_claim_takes_in_so_many_and_the_next_ones_go_on(store, url):
    names = [f"{number:04}" for number in range(NUMBER)]
    await store.insert(jobs(*names))
    async with await psycopg.AsyncConnection.connect(url) as late:
        await store.insert(jobs("late"), within=late)

        first = await claim(store)
        await store.insert(jobs("meanwhile"))
        second = await claim(store)
        await late.commit()
    third = await claim(store)

    assert [each.jobs for each in (first, second)] == [[], []]
    assert [each.ask_again_at for each in (first, second)] == [first.now, second.now]
    assert [job.id for job in third.jobs] == names[:1]
    started = [job.id for _ in range(14) for job in (await claim(store, 100)).jobs]
    assert started[: NUMBER - 1] == names[1:]
    assert sorted(started[NUMBER - 1 :]) == ["late", "meanwhile"]
    assert (await store.counts("line"))["waiting"] == 0


async def test_many_jobs_of_few_groups_take_turns_from_the_first_start_on(store):
    for number in range(AT_ONCE + 20):
        await store.insert([NewJob(f"a{number}", "line", "work", group="a")])
    await store.insert([NewJob("b", "line", "work", group="b")])

    assert (await claim(store)).jobs == []

    assert [job.id for job in (await claim(store, 3)).jobs] == ["a0", "b", "a1"]
