"""Many at once: threads with their own event loops and handles, let go together."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.errors import GroupFull
from paceline.job import JobState, Move
from paceline.limits import Concurrency, Rate
from paceline.stores.interface import Target

from .builders import a_job, a_job_in, add, add_many, claim, claimed, declare, ending, start_all, state_of, usage


async def test_one_job_goes_to_exactly_one_of_ten(store, in_threads):
    await add(store, "a")

    claims = await in_threads(10, lambda store, index: claim(store, worker=f"worker {index}"))

    assert sorted(len(each.jobs) for each in claims) == [0] * 9 + [1]


async def test_five_jobs_go_to_five_of_fifteen(store, in_threads):
    ids = await add_many(store, 5)

    claims = await in_threads(15, lambda store, index: claim(store, worker=f"worker {index}"))

    assert sorted(id for each in claims for id in claimed(each)) == sorted(ids)


async def test_48_claimers_of_grouped_jobs_get_distinct_jobs_and_keep_the_cap(store, in_threads):
    await declare(store, "tenant", Concurrency(2), by="group")
    await store.insert([a_job(group=f"group {number % 5}") for number in range(200)])

    claims = await in_threads(48, lambda store, index: claim(store, worker=f"worker {index}"))

    jobs = [job for each in claims for job in each.jobs]
    assert len({job.id for job in jobs}) == len(jobs) == 10
    assert set(Counter(job.group for job in jobs).values()) == {2}


async def test_48_claimers_start_exactly_what_a_rate_allows(store, in_threads):
    await declare(store, "all", Rate(30, per="1h"))
    await add_many(store, 200)

    claims = await in_threads(48, lambda store, index: claim(store, 3, worker=f"worker {index}"))

    assert sum(len(each.jobs) for each in claims) == 30
    assert (await usage(store, "all")).used == len(await store.starts("line", None)) == 30


async def test_claimers_that_finish_and_claim_again_never_break_a_cap_and_lose_nothing(store, in_threads):
    await declare(store, "all", Concurrency(5))
    await declare(store, "tenant", Concurrency(1), by="group")
    ids = await add_many(store, 100, group="a") + await add_many(store, 100, group="b")
    ids += await add_many(store, 100)
    running: list[int] = []
    running_of_a_group: list[int] = []

    async def work(store, index: int) -> list[str]:
        done, finishes = [], []
        while (await store.counts("line"))["completed"] < 300:
            answer = await claim(store, 2, worker=f"worker {index}", finishes=finishes)
            assert answer.lost == []
            finishes = [ending(job) for job in answer.jobs]
            done += claimed(answer)
            running.append((await usage(store, "all")).used)
            running_of_a_group.append((await usage(store, "tenant", "a")).used)
        return done

    done = await in_threads(8, work)

    assert sorted(id for each in done for id in each) == sorted(ids)
    assert (max(running) <= 5, max(running_of_a_group)) == (True, 1)
    assert ((await usage(store, "all")).used, (await usage(store, "tenant", "a")).used) == (0, 0)


async def test_parallel_adds_fill_a_group_to_exactly_its_size(store, in_threads):
    async def work(store, index: int) -> bool:
        try:
            await add(store, f"job {index}", group="acme", group_max_size=10, delay="1h" if index % 2 else 0)
        except GroupFull:
            return False
        return True

    added = await in_threads(48, work)

    counts = await store.counts("line")
    assert (sum(added), counts["waiting"] + counts["delayed"]) == (10, 10)


async def test_parallel_bulks_fill_a_group_to_at_most_its_size_and_whole(store, in_threads):
    async def work(store, index: int) -> bool:
        try:
            await store.insert([a_job(f"{index}-{place}", group="acme", group_max_size=10) for place in range(3)])
        except GroupFull:
            return False
        return True

    added = await in_threads(20, work)

    assert (sum(added), (await store.counts("line"))["waiting"]) == (3, 9)


@pytest.mark.parametrize("what", [{"unique": "key"}, {"id": "same"}], ids=["key", "id"])
async def test_parallel_adds_of_the_same_give_one_job(store, in_threads, what):
    async def work(store, index: int) -> tuple[str, bool]:
        (inserted,) = await store.insert([a_job(**{"id": f"job {index}"} | what)])
        return inserted.job.id, inserted.existed

    answers = await in_threads(40, work)

    assert len({id for id, _ in answers}) == 1
    assert [existed for _, existed in answers].count(False) == 1
    assert sum((await store.counts("line")).values()) == 1


async def test_parallel_permits_take_exactly_what_is_free(store, in_threads):
    await declare(store, "api", Rate(7, per="1h"))

    grants = await in_threads(40, lambda store, index: store.acquire([Target("api")], f"permit {index}", 60_000_000))

    assert [grant.granted for grant in grants].count(True) == 7


async def test_parallel_ends_of_one_run_are_accepted_once(store, in_threads):
    job = await a_job_in(store, JobState.ACTIVE)

    lost = await in_threads(10, lambda store, index: store.finish([ending(job, result=b"%d" % index)]))

    winner = lost.index([])
    assert sorted(map(len, lost)) == [0] + [1] * 9
    assert (await store.get(["a"]))[0].result == b"%d" % winner


async def test_adds_and_claims_at_the_same_time_lose_nothing(store, in_threads):
    async def work(store, index: int) -> list[str]:
        if index % 2:
            await store.insert([a_job(f"{index}-{place}", group=f"g{place % 3}") for place in range(50)])
            return []
        return [job.id for job in await start_all(store, 7, worker=f"worker {index}")]

    early = await in_threads(12, work)
    late = [job.id for job in await start_all(store)]

    ids = [id for each in early for id in each] + late
    assert sorted(ids) == sorted(f"{index}-{place}" for index in range(1, 12, 2) for place in range(50))


async def test_a_cancel_that_races_with_claims_loses_no_job(store, in_threads):
    ids = await add_many(store, 200)

    async def work(store, index: int) -> None:
        if index % 2:
            for id in ids[index // 2 :: 4]:
                await store.move([id], Move.CANCEL)
        else:
            await start_all(store, 3, worker=f"worker {index}")

    await in_threads(8, work)

    jobs = await store.get(ids)
    assert len(jobs) == 200
    assert {(job.state, job.cancel_asked) for job in jobs} <= {(JobState.CANCELLED, False), (JobState.ACTIVE, True)}
    assert len(await store.starts("line", None)) == sum(job.state is JobState.ACTIVE for job in jobs)


async def test_a_promotion_that_races_with_claims_starts_every_job_once(store, in_threads):
    ids = await add_many(store, 200, delay="1h")

    async def work(store, index: int) -> list[str]:
        if index % 2:
            for id in ids[index // 2 :: 4]:
                await store.move([id], Move.PROMOTE)
            return []
        return [job.id for job in await start_all(store, 3, worker=f"worker {index}")]

    started = [id for each in await in_threads(8, work) for id in each]
    started += [job.id for job in await start_all(store)]

    assert sorted(started) == sorted(ids)


async def test_an_expired_lease_is_taken_over_by_exactly_one(store, clock, in_threads):
    await add(store, "a")
    await claim(store, worker="dead", lease="1m")
    clock.advance("1m")

    claims = await in_threads(10, lambda store, index: claim(store, worker=f"worker {index}"))

    (job,) = [job for each in claims for job in each.jobs]
    assert (job.crashes, await state_of(store, "a")) == (1, JobState.ACTIVE)
