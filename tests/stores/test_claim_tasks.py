"""Step 2, claim: the tasks a worker can run, and several queues at once."""

from __future__ import annotations

from paceline.clock import NEVER
from paceline.job import JobState
from paceline.limits import Rate

from .builders import SECOND, a_job, add, add_many, claim, claimed, declare, groups_of, start, start_all, state_of

MAIL = frozenset(["mail"])


async def test_a_worker_gets_only_the_tasks_it_can_run(store):
    await add(store, "a", task="bill")
    await add(store, "b", task="mail")
    await add(store, "c", task="bill")

    assert claimed(await claim(store, 5, tasks=MAIL)) == ["b"]


async def test_a_worker_that_names_no_tasks_gets_all(store):
    await claim(store, worker="other", tasks=MAIL)
    await add(store, "a", task="bill")
    await add(store, "b", task="mail")

    assert claimed(await claim(store, 5)) == ["a", "b"]


async def test_a_job_that_no_worker_knows_stays_waiting(store):
    await add(store, "a", task="unknown")

    answer = await claim(store, 5, tasks=MAIL)

    assert (claimed(answer), answer.ask_again_at) == ([], NEVER)
    assert await state_of(store, "a") == JobState.WAITING


async def test_tasks_that_a_worker_does_not_know_hide_nothing_at_any_depth(store):
    await add_many(store, 2000, task="unknown")
    await add(store, "mine", task="mail")

    assert claimed(await claim(store, tasks=MAIL)) == ["mine"]


async def test_tasks_that_a_worker_does_not_know_hide_nothing_inside_a_group(store):
    await add_many(store, 100, task="unknown", group="acme", priority=-1)
    await add(store, "mine", task="mail", group="acme")

    assert claimed(await claim(store, tasks=MAIL)) == ["mine"]


async def test_old_and_new_workers_share_a_queue(store):
    old, new = frozenset(["mail"]), frozenset(["mail", "bill"])
    await store.insert([a_job(f"{task} {place}", task=task) for place in range(2) for task in ("bill", "mail")])

    assert claimed(await claim(store, worker="old", tasks=old)) == ["mail 0"]
    assert claimed(await claim(store, 2, worker="new", tasks=new)) == ["bill 0", "bill 1"]
    assert claimed(await claim(store, 2, worker="old", tasks=old)) == ["mail 1"]


async def test_order_is_kept_for_a_worker_that_knows_all_tasks_beside_one_that_does_not(store):
    await claim(store, worker="old", tasks=MAIL)
    order = ["bill", "mail", "mail", "bill", "mail"]
    await store.insert([a_job(f"{place} {task}", task=task) for place, task in enumerate(order)])

    jobs = await start(store, 5, worker="new", tasks=frozenset(["mail", "bill"]))

    assert [job.id for job in jobs] == [f"{place} {task}" for place, task in enumerate(order)]


async def test_a_group_has_one_turn_whatever_tasks_its_jobs_have(store):
    await claim(store, worker="old", tasks=MAIL)
    await store.insert([a_job(task=task, group="both") for task in ("mail", "bill") * 3])
    await add_many(store, 6, task="mail", group="one")

    jobs = await start(store, 6, worker="new")

    assert groups_of(jobs) == ["both", "one", "both", "one", "both", "one"]


async def test_a_task_that_arrives_first_after_the_claims_is_found(store):
    await claim(store, tasks=MAIL)

    await add(store, "a", task="mail")

    assert claimed(await claim(store, tasks=MAIL)) == ["a"]


async def test_two_workers_with_tasks_of_their_own_drain_a_queue(store):
    await store.insert([a_job(task="mail" if number % 3 else "bill", group=f"g{number % 7}") for number in range(300)])

    mail = await start_all(store, 7, worker="one", tasks=MAIL)
    bill = await start_all(store, 7, worker="two", tasks=frozenset(["bill"]))

    assert ({job.task for job in mail}, len(mail)) == ({"mail"}, 200)
    assert ({job.task for job in bill}, len(bill)) == ({"bill"}, 100)


async def test_several_queues_take_turns_in_one_claim(store):
    await add(store, "a1", "a2", "a3", queue="one")
    await add(store, "b1", "b2", queue="two")

    assert claimed(await claim(store, 5, queues=["one", "two"])) == ["a1", "b1", "a2", "b2", "a3"]


async def test_queues_are_asked_in_the_order_of_the_claim(store):
    await add(store, "a", queue="one")
    await add(store, "b", queue="two")

    assert claimed(await claim(store, 2, queues=["two", "one"])) == ["b", "a"]


async def test_an_empty_queue_gives_its_turn_away(store):
    await add(store, "a", "b", queue="two")

    assert claimed(await claim(store, 5, queues=["one", "two", "three"])) == ["a", "b"]


async def test_a_full_queue_hides_no_other_queue(store):
    await declare(store, "one", Rate(1, per="1h"), queues=["one"])
    await add_many(store, 100, queue="one")
    await add(store, "b1", "b2", "b3", queue="two")

    jobs = await start(store, 4, queues=["one", "two"])

    assert [job.queue for job in jobs] == ["one", "two", "two", "two"]


async def test_a_claim_starts_nothing_from_queues_it_does_not_name(store):
    await add(store, "a", queue="one")

    answer = await claim(store, 5, queues=["two"])

    assert (claimed(answer), answer.ask_again_at) == ([], NEVER)


async def test_the_first_instant_of_several_queues_says_when_to_ask_again(store, clock):
    await add(store, "a", queue="one", delay="10s")
    await add(store, "b", queue="two", delay="5s")

    answer = await claim(store, queues=["one", "two"])

    assert answer.ask_again_at == clock.now() + 5 * SECOND
