"""What an operator is told: which key, how to take it back, and what a job waits for."""

from __future__ import annotations

from .conftest import Shop, eventually

TENANTS = """
app.limit("tenant", Rate(10, per="1h"), by="group", tasks=["sleep"])
"""


def with_tenants(shop: Shop) -> None:
    (shop.folder / "jobs.py").write_text((shop.folder / "jobs.py").read_text() + TENANTS)
    assert shop.start("worker", "jobs:app", "--burst").ended() == 0  # a worker declares its limits


def test_a_pause_names_the_command_that_takes_it_back(shop: Shop) -> None:
    app = ("-a", "jobs:app")

    assert shop.run("pause", *app).endswith("go on with `paceline resume`\n")
    assert shop.run("pause", "-t", "sleep", *app).endswith("`paceline resume --task sleep`\n")
    assert shop.run("pause", "big one", "-g", "acme", *app).endswith("`paceline resume 'big one' --group acme`\n")


def test_a_change_for_one_group_says_so_and_is_seen_by_others(shop: Shop) -> None:
    with_tenants(shop)
    one = ("-g", "acme", "-a", "jobs:app")

    said = shop.run("limits", "set", "tenant", "5/s", "-r", "vip\x1b[2J", *one)
    assert said == "tenant of group 'acme': 5 per 1s, until `paceline limits reset tenant --group acme`\n"
    seen = shop.run("limits", "-a", "jobs:app")
    assert "tenant of group 'acme': set to 5 per 1s; declared: 10 per 1h: vip [2J" in seen
    found = {limit["name"]: limit["override_of_groups"] for limit in shop.read("limits")}
    assert found["mail"] == {} and found["tenant"]["acme"]["kind"] == "Rate(5, per='1s')"
    assert shop.run("limits", "reset", "tenant", *one) == "tenant of group 'acme': 10 per 1h, as declared\n"
    assert "of group 'acme': nobody starts for" in shop.run("limits", "hold", "tenant", "--for", "90s", *one)
    assert shop.run("limits", "release", "tenant", *one) == "tenant of group 'acme': released\n"


def test_why_says_that_nobody_serves_the_queue(shop: Shop) -> None:
    job = shop.add("sleep", "0", "--queue", "elsewhere")

    assert "; no worker serves queue 'elsewhere' now\n" in shop.run("why", job, "-a", "jobs:app")
    found = shop.read("why", job)
    assert found["text"].endswith("no worker serves queue 'elsewhere' now") and not found["served"]


def test_why_says_the_position_and_what_helps_in_words_of_users(shop: Shop) -> None:
    first, second = shop.add("sleep", "0"), shop.add("sleep", "0")
    own, next_ = [shop.add("sleep", "0", "--group", "acme") for _ in range(2)]
    shop.run("pause", "-a", "jobs:app")

    said = {job: shop.run("why", job, "-a", "jobs:app") for job in (first, second, own, next_)}

    assert "first in the queue, 2 groups take turns" in said[first]
    assert "1 job ahead of it in the queue" in said[second]
    assert "first of its group" in said[own]
    assert "1 job of its group ahead of it" in said[next_]
    assert "not known: that takes an operator who resumes what is paused\n" in said[first]


def test_why_names_the_bigger_job_that_goes_first(shop: Shop) -> None:
    (shop.folder / "big.py").write_text(
        "import asyncio\nimport jobs\nfrom paceline import Rate\n"
        "jobs.app.limit('load', Rate(10, per='1h'), tasks=['sleep'])\n"
        "async def main():\n    async with jobs.app:\n        for cost in (8, 9, 1):\n"
        "            print((await jobs.sleep.using(cost=cost).enqueue(0)).id)\n"
        "if __name__ == '__main__':\n    asyncio.run(main())\napp = jobs.app\n"
    )
    _, big, small = shop.python("big.py").split()
    worker = shop.start("worker", "big:app")
    worker.until("completed")

    said = shop.run("why", small, "-a", "big:app")
    worker.stop()

    assert f"kept free for the bigger job {big}" in said.splitlines()[0]
    assert f"8/10, 10 per 1h: kept free for the bigger job {big}" in said
    assert "earliest   now" not in said


def test_why_says_that_a_job_can_never_start_under_a_lowered_limit(shop: Shop) -> None:
    (shop.folder / "big.py").write_text(
        "import asyncio\nimport jobs\nfrom paceline import Rate\n"
        "jobs.app.limit('load', Rate(10, per='1h'), tasks=['sleep'])\n"
        "async def main():\n    async with jobs.app:\n"
        "        print((await jobs.sleep.using(cost=8).enqueue(0)).id)\n"
        "        await jobs.app.override('load', Rate(3, per='1h'))\n"
        "if __name__ == '__main__':\n    asyncio.run(main())\napp = jobs.app\n"
    )
    job = shop.python("big.py").strip()

    said = shop.run("why", job, "-a", "big:app")

    assert "it costs 8, and limit 'load' never allows more than 3" in said.splitlines()[0]
    assert "0/3, 3 per 1h: never allows the cost of 8" in said
    assert "earliest   never: it fails with NeverFits when a worker claims it" in said


def test_the_sql_of_a_schema_needs_no_database(shop: Shop) -> None:
    assert "create schema if not exists mine" in shop.run("migrate", "--sql", "--schema", "mine")


def test_a_change_of_one_part_of_a_limit_keeps_the_others(shop: Shop) -> None:
    shop.start("worker", "jobs:app", "--burst").ended()  # declares mail: 2 per 1h, 5 at once
    app = ("-a", "jobs:app")

    def allows() -> str:
        found: str = shop.read("limits")[0]["kind"]
        return found

    said = shop.run("limits", "set", "mail", "60/min", "--for", "1h", *app)
    assert said == "mail: 60 per 1m, 5 at once for 1h\nkept: 5 at once (--exactly would drop it)\n"
    assert allows() == "AllOf(Rate(60, per='1m'), Concurrency(5))"
    shop.run("limits", "set", "mail", "3 at once", *app)
    assert allows() == "AllOf(Concurrency(3), Rate(60, per='1m'))"
    shop.run("limits", "set", "mail", "50 per 1m, 4 at once", *app)
    assert allows() == "AllOf(Rate(50, per='1m'), Concurrency(4))"
    assert "kept" not in shop.run("limits", "set", "mail", "60/min", "--exactly", *app)
    assert allows() == "Rate(60, per='1m')"
    shop.run("limits", "set", "mail", "no limit", *app)
    assert allows() == "Unlimited()"
    assert shop.run("limits", "reset", "mail", *app) == "mail: 2 per 1h, 5 at once, as declared\n"


def test_jobs_of_a_task_that_no_worker_knows_are_shown(any_shop: Shop) -> None:
    shop = any_shop
    worker = shop.start("worker", "jobs:app")
    eventually(lambda: bool(shop.read("status")["workers"]))
    shop.run("enqueue", "gone", "--store", shop.url)
    shop.run("enqueue", "gone", "--store", shop.url)

    assert "queue default: no worker knows the task 'gone'" in shop.run("status", "--store", shop.url)
    assert shop.read("status")["unknown_tasks"] == {"default": {"gone": 2}}
    said = shop.run("doctor", "--store", shop.url)
    assert "2 jobs wait in queue 'default' for the task 'gone', which no worker of the queue knows" in said

    assert worker.stop() == 0


def test_jobs_are_listed_newest_first_with_how_many_there_are(any_shop: Shop) -> None:
    shop = any_shop
    (shop.folder / "calls").write_text("[0]\n" * 30)
    shop.run("enqueue", "sleep", "-f", "calls", "-a", "jobs:app")
    last = shop.add("sleep", "1")

    newest = [job["id"] for job in shop.read("jobs", "-n", "5")]
    oldest = [job["id"] for job in shop.read("jobs", "-n", "40", "--oldest")]
    assert newest == oldest[::-1][:5] and newest[0] == last

    said = shop.run("jobs", "-a", "jobs:app")
    assert "20 of 31 jobs, the newest first" in said
    page = shop.run("jobs", "-a", "jobs:app", "-q", "default", "-s", "waiting", "-n", "30")
    assert f"30 of 31 jobs, the newest first; -n for more; the next page: --after {oldest[1]}" in page
    assert oldest[0] in shop.run("jobs", "-a", "jobs:app", "-q", "default", "--after", oldest[1])
    assert "of 31" not in shop.run("jobs", "-a", "jobs:app", "-n", "31")
    assert len(shop.read("jobs", "--since", "1h", "-n", "40")) == 31
    assert len(shop.read("jobs", "--since", "1h", "-n", "7", "--oldest")) == 7
    assert shop.read("jobs", "--since", "1us", "--oldest") == []
    assert "waiting-children" not in shop.run("jobs", "--help")


TYPED = """
from datetime import date

@app.task()
async def typed(name: str, number: int, maybe: str | None = None, *rest: str, day: date | None = None, **more: float):
    return [repr(each) for each in (name, number, maybe, rest, day, more)]


@app.task()
async def untyped(name, number=0):
    return [repr(name), repr(number)]
"""


def test_arguments_are_read_as_the_parameters_ask(shop: Shop) -> None:
    (shop.folder / "jobs.py").write_text((shop.folder / "jobs.py").read_text() + TYPED)
    words = ("typed", "12345", "7", "null", "true", "1.5", "plain", "day=2024-05-06", "x=1")
    typed, texts = shop.add(*words), shop.add("typed", "null", "1", "[1]")
    untyped = shop.add("untyped", "12345", 'number="9"')
    by_store = shop.run("enqueue", "untyped", "12345", "--store", shop.url).strip()
    shop.start("worker", "jobs:app", "--burst").ended()

    found = {job["id"]: job["result"] for job in shop.read("jobs")}
    assert found[typed] == [
        "'12345'",
        "7",
        "None",
        "('true', '1.5', 'plain')",
        "datetime.date(2024, 5, 6)",
        "{'x': 1.0}",
    ]
    assert found[texts][:3] == ["'null'", "1", "'[1]'"]
    assert found[untyped] == ["12345", "'9'"]
    assert found[by_store] == ["12345", "0"]
