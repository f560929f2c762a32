"""`paceline worker`: what it says, how it stops, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request

from .conftest import Shop, eventually


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def probe(url: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())
    except OSError:
        return 0, {}


def test_it_says_in_six_lines_what_it_is(shop: Shop) -> None:
    worker = shop.start("worker", "jobs:app", "--burst")

    assert worker.ended() == 0
    lines = worker.said.splitlines()
    assert len(lines) == 6
    assert [line.split()[0] for line in lines] == ["paceline", "store", "tasks", "limits", "slots", "stop"]
    assert "send_email, sleep" in lines[2] and "mail (2 per 1h, 5 at once)" in lines[3]


def test_each_job_is_a_line_when_it_starts_and_one_when_it_ends(shop: Shop) -> None:
    good, bad = shop.add("send_email", "ann", "-g", "acme"), shop.add("send_email", "bad", "--attempts", "1")

    worker = shop.start("worker", "jobs:app", "--burst")

    assert worker.ended() == 0
    assert re.search(rf"→ send_email \[acme\] {good} started", worker.said)
    assert re.search(rf"✓ send_email \[acme\] {good} completed after \d+ms", worker.said)
    assert re.search(rf"✗ send_email {bad} failed after \d+ms: ValueError: no such address", worker.said)
    assert 'raise ValueError("no such address")' in worker.said
    assert "run_in_loop" not in worker.said


def test_a_terminal_without_unicode_gets_plain_marks(shop: Shop) -> None:
    shop.add("send_email", "ann")

    worker = shop.start("worker", "jobs:app", "--burst", PYTHONIOENCODING="ascii", LC_ALL="C")

    assert worker.ended() == 0
    assert "> send_email" in worker.said and "+ send_email" in worker.said


def test_logs_as_json_say_which_job_a_line_is_about(shop: Shop) -> None:
    (shop.folder / "jobs.py").write_text(
        (shop.folder / "jobs.py").read_text()
        + "\nimport logging\n@app.task()\ndef talk() -> None:\n    logging.getLogger('mine').warning('hello')\n"
    )
    job = shop.add("talk", "-g", "acme")

    worker = shop.start("worker", "jobs:app", "--burst", "--log-format", "json")

    assert worker.ended() == 0
    lines = [json.loads(line) for line in worker.said.splitlines()]
    assert {(line.get("event"), line["message"].split()[-1]) for line in lines if "event" in line} >= {
        ("started", "started")
    }
    (said,) = [line for line in lines if line["logger"] == "mine"]
    assert (said["message"], said["level"]) == ("hello", "warning")
    assert (said["job_id"], said["task"], said["group"], said["attempt"]) == (job, "talk", "acme", 1)


def test_the_first_signal_lets_jobs_end(shop: Shop) -> None:
    job = shop.add("sleep", "1.5")
    worker = shop.start("worker", "jobs:app")
    worker.until("started")

    assert worker.stop() == 0
    assert "completed" in worker.said
    assert shop.state(job) == "completed"


def test_grace_that_is_over_hands_jobs_back_and_says_so(shop: Shop) -> None:
    job = shop.add("sleep", "60")
    worker = shop.start("worker", "jobs:app", "--grace", "200ms")
    worker.until("started")

    assert worker.stop() == 3
    found = shop.read("why", job)
    assert (found["state"], found["attempts_made"]) == ("waiting", 0)


def test_a_thread_that_cannot_be_stopped_does_not_keep_the_worker(shop: Shop) -> None:
    (shop.folder / "jobs.py").write_text(
        (shop.folder / "jobs.py").read_text()
        + "\nimport time\n@app.task()\ndef block() -> None:\n    time.sleep(300)\n"
        + "\n@app.task()\nasync def hide() -> None:\n    await asyncio.to_thread(time.sleep, 300)\n"
    )
    jobs = [shop.add("block"), shop.add("hide")]
    worker = shop.start("worker", "jobs:app", "--grace", "200ms")
    worker.until("started", times=2)

    assert worker.stop() == 3
    assert "Traceback" not in worker.said
    assert [shop.state(job) for job in jobs] == ["waiting", "waiting"]


def test_the_second_signal_hands_jobs_back_at_once(shop: Shop) -> None:
    job = shop.add("sleep", "60")
    worker = shop.start("worker", "jobs:app")
    worker.until("started")
    worker.process.send_signal(signal.SIGINT)
    worker.until("stopping:")

    assert worker.stop(signal.SIGINT) == 0
    assert shop.state(job) == "waiting"


def test_it_can_be_quiet_and_show_where_it_is(shop: Shop) -> None:
    worker = shop.start("worker", "jobs:app")
    worker.until("stop ")
    eventually(lambda: len(shop.read("status")["workers"]) == 1)
    worker.process.send_signal(signal.SIGTSTP)
    worker.until("quiet")
    job = shop.add("sleep", "0")
    worker.process.send_signal(signal.SIGUSR1)
    worker.until("task Task-1")
    assert shop.state(job) == "waiting"

    worker.process.send_signal(signal.SIGCONT)
    worker.until("completed")

    assert worker.stop() == 0


def test_probes_are_answered(shop: Shop) -> None:
    address = f"127.0.0.1:{port()}"
    worker = shop.start("worker", "jobs:app", "--health", address)

    eventually(lambda: probe(f"http://{address}/readyz")[0] == 200)
    assert probe(f"http://{address}/livez")[1]["ok"] is True
    assert probe(f"http://{address}/nothing")[0] == 404
    assert "cannot be used" in shop.run("worker", "jobs:app", "--health", address, code=2)
    job = shop.add("sleep", "2")
    worker.until("started")
    worker.process.send_signal(signal.SIGTERM)
    eventually(lambda: probe(f"http://{address}/readyz")[0] == 503)

    assert worker.ended() == 0
    assert shop.state(job) == "completed"


def test_several_processes_share_the_work_and_the_dead_are_replaced(shop: Shop) -> None:
    address = f"127.0.0.1:{port()}"
    crew = shop.start("worker", "jobs:app", "-p", "2", "-c", "1", "--health", address)
    eventually(lambda: probe(f"http://{address}/readyz")[0] == 200)
    assert probe(f"http://{address}/readyz")[1] == {"ok": True, "ready": 2, "of": 2}
    victim = shop.read("status")["workers"][0]["id"]

    os.kill(int(victim.split(":")[1]), signal.SIGKILL)
    crew.until("ended with signal SIGKILL and is started anew")
    eventually(lambda: probe(f"http://{address}/readyz")[0] == 200)
    for _ in range(4):
        shop.add("sleep", "0.2")
    crew.until("completed", times=4)

    assert crew.stop(signal.SIGINT) == 0
    assert {job["state"] for job in shop.read("jobs")} == {"completed"}


def test_processes_end_with_their_supervisor(shop: Shop) -> None:
    crew = shop.start("worker", "jobs:app", "-p", "2")
    eventually(lambda: len(shop.read("status")["workers"]) == 2)

    crew.process.kill()

    eventually(lambda: shop.read("status")["workers"] == [])


def test_a_burst_of_processes_ends_when_everything_is_done(shop: Shop) -> None:
    for _ in range(3):
        shop.add("sleep", "0.1")

    assert shop.start("worker", "jobs:app", "-p", "2", "--burst").ended() == 0
    assert {job["state"] for job in shop.read("jobs")} == {"completed"}


def test_a_changed_file_starts_it_anew(shop: Shop) -> None:
    worker = shop.start("dev", "jobs:app")
    shop.add("send_email", "one")
    worker.until("completed")
    assert "tasks           send_email, sleep\n" in worker.said

    (shop.folder / "jobs.py").write_text("this is no Python")
    worker.until("could not be imported")
    worker.until("starts anew when a file changes")
    text = "from paceline import App\nimport os\napp = App(os.environ['TEST_STORE'])\n"
    (shop.folder / "jobs.py").write_text(text + "@app.task()\nasync def fresh(): pass\n")
    eventually(lambda: _knows(shop, "fresh"))

    assert worker.stop(signal.SIGINT) == 0


def _knows(shop: Shop, task: str) -> bool:
    found = json.loads(shop.run("status", "--store", shop.url, "--json"))["workers"]
    return any(worker["tasks"] == [task] for worker in found)


def test_a_second_worker_shares_the_limits(shop: Shop) -> None:
    for number in range(4):
        shop.add("send_email", f"p{number}")
    first, second = (shop.start("worker", "jobs:app") for _ in range(2))
    eventually(lambda: (first.said + second.said).count("completed") == 2)
    eventually(lambda: len(shop.read("status")["workers"]) == 2)

    assert shop.read("status")["queues"][0]["counts"]["waiting"] == 2
    assert (first.stop(), second.stop()) == (0, 0)
