"""What goes wrong at a terminal: each in a sentence, with an exit code, and nothing lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Shop


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["worker", "nosuch:app"], 2, "there is no module 'nosuch' here"),
        (["worker", "jobs:nothing"], 2, "module 'jobs' has no 'nothing'; it has app"),
        (["worker", "jobs:os"], 2, "expected a paceline.App"),
        (["worker", "jobs/app.py"], 2, "expected module:attribute such as jobs:app"),
        (["worker"], 2, "no app: name it (paceline worker jobs:app)"),
        (["worker", "jobs:app", "-c", "0"], 2, "0 is not in the range"),
        (["worker", "jobs:app", "--grace", "soon"], 2, "grace='soon' is wrong"),
        (["worker", "jobs:app", "--health", "nowhere"], 2, "expected host:port"),
        (["worker", "jobs:app", "--reload", "--burst"], 2, "a burst ends"),
        (["status"], 2, "no app and no store"),
        (["status", "-a", "jobs:app", "--store", "sqlite:///x.db"], 2, "both given"),
        (["status", "--store", "mysql://x"], 2, "url='mysql://x' is wrong"),
        (["status", "--store", "memory://"], 2, "memory:// lives inside one process"),
        (["enqueue", "sleep", "--store", "sqlite:///nowhere/at/all/jobs.db"], 4, "nowhere"),
        (["why", "nobody", "-a", "jobs:app"], 1, "there is no job 'nobody'"),
        (["cancel", "nobody", "-a", "jobs:app"], 1, "there is no job 'nobody'"),
        (["retry", "-a", "jobs:app"], 2, "name jobs, or --state failed"),
        (["clean", "active", "-a", "jobs:app"], 2, "'active' is not one of"),
        (["status", "--store", "sqlite:///typo.db"], 2, "there is no file"),
        (["limits", "drop", "nosuch", "-a", "jobs:app"], 2, "there is no limit 'nosuch'"),
        (["limits", "set", "nosuch", "5/s", "-a", "jobs:app"], 2, "there is no limit 'nosuch'"),
        (["limits", "set", "mail", "Rate(0, per='1s')", "-a", "jobs:app"], 2, "max=0 is wrong"),
        (["limits", "set", "mail", "5 parsecs", "-a", "jobs:app"], 2, "expected a rate such as"),
        (["limits", "set", "mail", "__import__('os').system('x')", "-a", "jobs:app"], 2, "is wrong"),
        (["limits", "hold", "mail", "--for", "ages", "-a", "jobs:app"], 2, "for_='ages' is wrong"),
        (["enqueue", "nosuch", "-a", "jobs:app"], 2, "the app has the tasks send_email, sleep"),
        (["enqueue", "send_email", "-a", "jobs:app"], 2, "send_email: missing a required argument: 'to'"),
        (["enqueue", "send_email", "a", "wrong=1", "-a", "jobs:app"], 2, "unexpected keyword argument 'wrong'"),
        (["enqueue", "send_email", "--data", "{", "-a", "jobs:app"], 2, "expected JSON"),
        (["enqueue", "send_email", "x", "--delay", "-5s", "-a", "jobs:app"], 2, "delay='-5s' is wrong"),
        (["status", "-a", "jobs:app", "--namespace", "other"], 2, "whose namespace is 'default'"),
        (["worker", "jobs:app", "-a", "other:app"], 2, "give one of them"),
        (["enqueue", "sleep", "-f", "jobs.py", "--job-id", "a", "-a", "jobs:app"], 2, "--file adds many"),
        (["clean", "completed", "--older-than", "x", "-a", "jobs:app"], 2, "older_than='x' is wrong"),
        (["why", "\udcff", "-a", "jobs:app"], 2, "no text in the encoding of this terminal"),
        (["migrate", "sqlite:///jobs.db"], 2, "needs no migration"),
        (["migrate", "--store", "sqlite:///jobs.db"], 2, "needs no migration"),
        (["migrate", "postgresql://h/d", "--store", "postgresql://h/d"], 2, "expected one of them"),
        (["demo", "--jobs", "0"], 2, "0 is not in the range"),
        (["demo", "--picture", "nowhere/demo.svg"], 2, "there is no folder nowhere"),
        (["demo", "--picture", "/proc/demo.svg"], 2, "cannot be written"),
        (["nonsense"], 2, "No such command 'nonsense'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_input_is_said_in_a_sentence(shop: Shop, words: list[str], code: int, said: str) -> None:
    printed = shop.run(*words, code=code)

    assert said in printed
    assert "Traceback" not in printed


def test_an_error_in_the_module_shows_its_own_traceback(shop: Shop) -> None:
    (shop.folder / "broken.py").write_text("import json\n\nimport nosuch_package\n")

    said = shop.run("worker", "broken:app", code=2)

    assert "the module 'broken' could not be imported" in said
    assert 'broken.py", line 3' in said and "No module named 'nosuch_package'" in said
    assert "importlib" not in said and "cli" not in said


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        ("import sys\nsys.exit(3)\n", "broken:app", "it ends the program (exit code 3)"),
        ("from paceline import App\napp = App('mysql://me:secret@h/x')\n", "broken:app", "broken.py, line 2): url="),
        ("def make():\n    raise ValueError('no config')\n", "broken:make", "ValueError: no config"),
        ("def make(x):\n    pass\n", "broken:make", "missing 1 required positional argument"),
        ("1 / 0  # redis://me:secret@h\n", "broken:app", "ZeroDivisionError"),
    ],
    ids=["exits", "wrong url", "factory raises", "factory wants more", "secret in the code"],
)
def test_a_module_that_makes_no_app_is_said_without_our_frames(shop: Shop, module: str, name: str, said: str) -> None:
    (shop.folder / "broken.py").write_text(module)

    for words in (["worker", name], ["status", "-a", name], ["doctor", "-a", name]):
        printed = shop.run(*words, code=2)
        assert printed.count(said) == 1
        assert "secret" not in printed and "target.py" not in printed and "click" not in printed.split("Error:")[1]


def test_passwords_are_in_no_error(shop: Shop) -> None:
    said = shop.run("status", "--store", "postgress://me:secret@h/x", code=2)
    said += shop.run("status", "--store", "redis://:secret@h", "-a", "jobs:app", code=2)
    said += shop.run("status", code=2, PACELINE_STORE="redis://:secret@h", PACELINE_APP="jobs:app")
    said += shop.run("doctor", "--json", "--store", "mysql://h/x?password=secret", code=2)

    assert said.count("***") == 6 and "secret" not in said


def test_a_project_file_that_is_wrong_is_said_in_a_sentence(shop: Shop) -> None:
    project = shop.folder / "pyproject.toml"
    for text, said in (("[tool]\npaceline = 3\n", "expected a table"), ("tool = 3\n", "no app and no store")):
        project.write_text(text)
        assert said in shop.run("status", code=2)


def test_memory_cannot_be_shared_by_processes(shop: Shop) -> None:
    said = shop.run("worker", "jobs:app", "-p", "2", code=2, TEST_STORE="memory://")

    assert "memory://, which lives inside one process" in said


def test_a_store_that_is_down_at_the_start_is_exit_code_4(shop: Shop) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        number = closed.getsockname()[1]

        for url in (f"postgresql://u:secret@127.0.0.1:{number}/x", f"redis://:secret@127.0.0.1:{number}/0"):
            said = shop.run("worker", "jobs:app", code=4, TEST_STORE=url) + shop.run("status", "--store", url, code=4)
            said += shop.run("doctor", "--store", url, code=4)
            assert "secret" not in said and "Traceback" not in said


def test_settings_are_found_in_the_environment_and_the_project(shop: Shop) -> None:
    (shop.folder / "pyproject.toml").write_text('[tool.paceline]\napp = "jobs:app"\n')
    below = shop.folder / "below"
    below.mkdir()

    assert "no jobs yet" in shop.run("status")
    assert "(from [tool.paceline] in" in shop.run("doctor")
    other = f"sqlite:///{shop.folder}/other.db"
    shop.run("enqueue", "sleep", "--store", other)
    assert "sqlite:////" in shop.run("status", PACELINE_STORE=other)
    assert "no jobs yet" in shop.run("status", PACELINE_APP="jobs")
    assert shop.run("worker", "--burst", PACELINE_WORKER_CONCURRENCY="3").count("3 at once") == 1
    for variable in ("PACELINE_WORKER_QUEUE", "PACELINE_WORKER_QUEUES"):
        assert "queues mail, imports" in shop.run("worker", "--burst", **{variable: "mail imports"})
    assert "send_email, sleep" in shop.run("worker", "--burst", "-a", "jobs:app", PACELINE_APP="other:app")


def test_a_reader_that_has_seen_enough_is_no_error(shop: Shop) -> None:
    for _ in range(3):
        shop.add("sleep", "0")
    command = f"{sys.executable} -m paceline jobs -a jobs:app | head -1; exit ${{PIPESTATUS[0]}}"

    done = subprocess.run(
        ["bash", "-c", command], cwd=shop.folder, env=shop.env, text=True, capture_output=True, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_names_cannot_drive_the_terminal(shop: Shop) -> None:
    shop.run("enqueue", "task\x1b[2J", "--store", shop.url, code=2)
    shop.add("send_email", "x")
    (shop.folder / "jobs.py").write_text(
        "from paceline import App, Fail\nimport os\napp = App(os.environ['TEST_STORE'])\n"
        "@app.task()\ndef send_email(*a, **k): raise Fail('\\x1b[2Jgone\\nnext')\n"
    )
    worker = shop.start("worker", "jobs:app", "--burst")
    assert worker.ended() == 0

    said = worker.said + shop.run("jobs", "-a", "jobs:app") + shop.run("status", "-a", "jobs:app")

    assert "\x1b" not in said


def test_sixty_columns_are_enough(shop: Shop) -> None:
    shop.add("send_email", "x", "--group", "a-tenant-with-a-rather-long-name-that-goes-on")
    shop.start("worker", "jobs:app", "--burst").ended()
    program = (
        "import os, pty, sys\n"
        "pid, screen = pty.fork()\n"
        "if pid == 0:\n"
        "    os.execv(sys.executable, [sys.executable, '-m', 'paceline', *sys.argv[1:]])\n"
        "while True:\n"
        "    try: data = os.read(screen, 65536)\n"
        "    except OSError: break\n"
        "    if not data: break\n"
        "    sys.stdout.buffer.write(data)\n"
    )
    whole = {"jobs": shop.read("jobs")[0]["id"], "limits": "1/2", "status": "1/2"}
    for words in (["status"], ["jobs"], ["limits"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words, "-a", "jobs:app"],
            cwd=shop.folder,
            env={**shop.env, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "60"},
            text=True,
            capture_output=True,
            timeout=60,
        )
        lines = done.stdout.replace("\r", "").splitlines()
        assert lines and max(len(line) for line in lines) <= 60, done.stdout
        assert whole[words[0]] in done.stdout  # half an id is none, and a bar without its numbers says little


def test_many_jobs_come_from_a_file_all_or_none_of_a_wrong_one(shop: Shop, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text('{"args": [0], "kwargs": {}}\n[0]\n{"seconds": 0}\n\n0\n' * 300)
    bad.write_text("[0]\n[0, 1]\n")

    assert "added 1200 jobs" in shop.run("enqueue", "sleep", "-a", "jobs:app", "--file", str(good))
    assert "line 2: sleep: too many positional" in shop.run(
        "enqueue", "sleep", "-a", "jobs:app", "--file", str(bad), code=2
    )

    assert shop.read("status")["queues"][0]["counts"]["waiting"] == 1200
    said = shop.run("clean", "waiting", "-a", "jobs:app", code=2)
    assert "up to 1200 waiting jobs" in said and "--yes" in said
    assert "1200 jobs removed" in shop.run("clean", "waiting", "-a", "jobs:app", "--yes")
    bad.write_bytes(b'["\xff"]\n')
    assert "expected JSON in UTF-8" in shop.run("enqueue", "sleep", "-a", "jobs:app", "--file", str(bad), code=2)
    good.write_text("[0]\n")
    assert "added 1 job of sleep" in shop.run("enqueue", "sleep", "-a", "jobs:app", "--file", str(good))
    added = json.loads(shop.run("enqueue", "sleep", "-a", "jobs:app", "--file", str(good), "--json"))
    assert added == {"added": 1, "queue": "default", "task": "sleep"}
    assert "2 jobs are cancelled" in shop.run("cancel", "-s", "waiting", "-a", "jobs:app", "--yes")


def test_nothing_is_assumed_of_the_environment(shop: Shop) -> None:
    bare = {"PATH": os.environ["PATH"], "TEST_STORE": shop.url}

    done = subprocess.run(
        [sys.executable, "-m", "paceline", "status", "-a", "jobs:app"],
        cwd=shop.folder,
        env=bare,
        capture_output=True,
        text=True,
        close_fds=True,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_options_of_a_store_may_stand_in_its_url(shop: Shop) -> None:
    from ..servers.fresh import empty_postgres
    from ..servers.redis import empty_redis

    postgres = empty_postgres()
    with_options = f"{postgres}{'&' if '?' in postgres else '?'}pooler=true&schema=paceline"
    assert "no jobs yet" in shop.run("status", "--store", with_options)
    assert "'typo' does not exist" in shop.run("status", "--store", with_options.replace("=paceline", "=typo"), code=2)
    assert "expected true or false" in shop.run("status", "--store", with_options.replace("true", "maybe"), code=2)
    assert "durability='never' is wrong" in shop.run("status", "--store", f"{empty_redis()}&durability=never", code=2)
