"""The first five minutes, on every store that processes share: add, look, run, ask why, change a limit, stop, go on."""

from __future__ import annotations

import signal

from .conftest import Shop, eventually


def test_the_first_five_minutes(any_shop: Shop) -> None:
    shop = any_shop
    sent = [shop.add("send_email", f"p{number}@example.org", "--group", "acme") for number in range(3)]
    assert "no worker runs" in shop.run("status", "-a", "jobs:app")

    worker = shop.start("worker", "jobs:app", "-c", "3")
    worker.until("completed", times=2)

    # The third one waits for the limit, and everybody can ask why, with the store's address alone.
    said = shop.run("why", sent[2], "--store", shop.url)
    assert "limit 'mail' is full, 2 of 2" in said
    assert "earliest" in said
    status = shop.read("status")
    (mail,) = status["limits"]
    assert (mail["used"], mail["allowed"], mail["waiting"]) == (2, 2, 1)
    assert status["queues"][0]["counts"]["completed"] == 2
    assert len(status["workers"]) == 1

    # More is allowed while it runs: the worker goes on at once.
    shop.run("limits", "set", "mail", "3/hour", "--reason", "they gave us more", "--store", shop.url)
    worker.until("completed", times=3)
    assert "they gave us more" in shop.run("limits", "--store", shop.url)

    fourth = shop.add("send_email", "p4@example.org")
    assert worker.stop(signal.SIGINT) == 0
    assert shop.state(fourth) == "waiting"

    shop.run("limits", "reset", "mail", "--store", shop.url)
    shop.run("limits", "clear", "mail", "--store", shop.url)
    assert shop.start("worker", "jobs:app", "--burst").ended() == 0
    assert {shop.state(job) for job in (*sent, fourth)} == {"completed"}
    eventually(lambda: shop.read("status")["workers"] == [])


def test_operators_pause_cancel_retry_and_clean(any_shop: Shop) -> None:
    shop = any_shop
    store = ("--store", shop.url)
    bad, gone = shop.add("send_email", "bad"), shop.add("sleep", "9", "--delay", "1h")
    assert "is cancelled" in shop.run("cancel", gone, *store)
    assert "is paused" in shop.run("pause", "--task", "send_email", *store)
    assert "task 'send_email' is paused" in shop.run("why", bad, *store)
    assert "goes on" in shop.run("resume", "--task", "send_email", *store)

    assert shop.start("worker", "jobs:app", "--burst").ended() == 0
    said = shop.run("why", bad, *store)
    assert "failed" in said and "attempt 2 of 2" in said and "no such address" in said

    shop.run("limits", "clear", "mail", *store)
    assert "1 job waits again" in shop.run("retry", "--state", "failed", "--yes", *store)
    assert shop.start("worker", "jobs:app", "--burst").ended() == 0
    assert shop.state(bad) == "failed"
    assert "1 job removed" in shop.run("clean", "failed", "--yes", *store)
    assert "there is no job" in shop.run("why", bad, *store, code=1)
    assert [job["id"] for job in shop.read("jobs")] == [gone]


def test_the_doctor_knows_the_store(any_shop: Shop) -> None:
    shop = any_shop
    shop.add("send_email", "a@example.org")

    said = shop.run("doctor", "--store", shop.url)

    assert any(server in said for server in ("SQLite 3", "PostgreSQL 1", "Valkey", "Redis 7"))
    assert "1 job waits in queue 'default', which no worker serves" in said
