"""What an operator is told: which key, how to take it back, and what a job waits for."""

from __future__ import annotations

from .conftest import Shop

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


def test_the_sql_of_a_schema_needs_no_database(shop: Shop) -> None:
    assert "create schema if not exists mine" in shop.run("migrate", "--sql", "--schema", "mine")
