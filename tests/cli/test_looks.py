"""How things look: bars for people only, kinds as they are typed, faults of servers as they are known."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from paceline import AllOf, Concurrency, ConfigError, Delay, EvenlySpaced, Rate, Unlimited
from paceline.cli.kinds import parse_kind
from paceline.cli.output import ahead, bar, clean, in_words, short, table
from paceline.stores.address import without_password
from paceline.stores.redis.about import about, scripts_are_safe

from ..servers.redis import RedisServer
from .conftest import Shop

KINDS = [
    Rate(100, per="1m"),
    Rate(5, per="250ms", guard="10ms"),
    Concurrency(3),
    Delay("50ms"),
    EvenlySpaced(60, per="1m"),
    Unlimited(),
    Rate(9, per="1s") & Concurrency(2) & Delay(),
    AllOf(Rate(1, per=1), Concurrency(1)),
]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_what_code_says_can_be_typed(kind: object) -> None:
    assert parse_kind(repr(kind)) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [("100/min", Rate(100, per="1m")), ("5 per 10s", Rate(5, per="10s")), (" Concurrency(4) ", Concurrency(4))],
)
def test_rates_can_be_typed_as_people_say_them(text: str, kind: object) -> None:
    assert parse_kind(text) == kind


@pytest.mark.parametrize(
    "text",
    ["", "5", "five", "Rate", "Rate()", "Rate(5)", "open('x')", "Rate(5, per=x)", "Rate(5, per='1s') | Concurrency(1)",
     "Rate(5, per='1s') & 3", "[].append(1)", "Concurrency(True)"],
)  # fmt: skip
def test_what_is_no_kind_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is wrong"):
        parse_kind(text)


def test_words_for_people() -> None:
    assert in_words(Rate(9, per="1s") & Concurrency(2)) == "9 per 1s, 2 at once"
    assert [short(us) for us in (0, 400, 1500, 2_345_678, 90_000_000, 300_000_000, 2 * 86_400_000_000)] == [
        "0s", "1ms", "1ms", "2.35s", "90s", "5m", "2d",
    ]  # fmt: skip
    assert (ahead(5, 10), ahead(2_000_010, 10), ahead(None, 10)) == ("now", "in 2s", "")
    assert (bar(5, 10, 4), bar(99, 10, 4), bar(0, 0, 4)) == ("██░░", "████", "████")
    assert clean("a\x1b[2Jb\nc") == "a [2Jb c"


def test_tables_are_aligned() -> None:
    assert table(["a", "number"], [["x", 1], ["long", 22]], right=["number"])[1:] == ["x          1", "long      22"]


def test_passwords_are_not_shown() -> None:
    assert without_password("redis://me:secret@h:1/0") == "redis://me:***@h:1/0"
    assert (
        without_password("postgresql://h/d?user=me&password=secret&x=1") == "postgresql://h/d?user=me&password=***&x=1"
    )
    assert without_password("sqlite:///jobs.db?durability=normal") == "sqlite:///jobs.db?durability=normal"


@pytest.mark.parametrize(
    ("name", "version", "safe"),
    [
        ("redis", (7, 0, 15), False),
        ("redis", (7, 2, 10), False),
        ("redis", (7, 2, 11), True),
        ("redis", (8, 2, 2), True),
        ("redis", (9, 0, 0), True),
        ("valkey", (8, 1, 3), False),
        ("valkey", (8, 1, 4), True),
        ("valkey", (9, 0, 0), True),
    ],
)
def test_servers_with_a_known_fault_are_named(name: str, version: tuple[int, ...], safe: bool) -> None:
    assert scripts_are_safe(name, version) is safe


def test_settings_that_lose_jobs_are_named() -> None:
    found = about(b"redis_version:7.0.15\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\n")

    assert found.server == "Redis 7.0.15"
    assert [text.split()[0] for text in found.warnings] == ["Redis", "appendonly", "maxmemory-policy"]


def on_a_terminal(shop: Shop, *words: str) -> str:
    """What a command shows on a terminal."""
    screen, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", *words],
        cwd=shop.folder,
        env={**shop.env, "TERM": "xterm", "COLUMNS": "100"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(screen, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(screen)
    assert process.wait(30) == 0, seen.decode()
    return seen.decode()


def test_long_work_has_a_bar_on_a_terminal_and_none_elsewhere(shop: Shop) -> None:
    lines = shop.folder / "calls.jsonl"
    lines.write_text("[0]\n" * 1500)
    add = ("enqueue", "sleep", "-a", "jobs:app", "--file", str(lines))
    remove = ("clean", "waiting", "-a", "jobs:app", "--yes")

    shown = on_a_terminal(shop, *add)
    assert "adding sleep" in shown and "1500/1500" in shown and "added 1500 jobs" in shown
    assert "default: remove" in on_a_terminal(shop, *remove)

    assert shop.run(*add) == "added 1500 jobs of sleep to queue default\n"
    assert shop.run(*remove) == "1500 jobs removed\n"


def test_status_watches_until_ctrl_c(shop: Shop) -> None:
    shop.add("sleep", "0")
    watching = shop.start("status", "--watch", "--every", "0.1", "-a", "jobs:app")
    watching.until("default        1", times=2)

    assert watching.stop(signal.SIGINT) == 0


def test_status_watches_on_when_the_store_is_away_for_a_while(shop: Shop) -> None:
    server = RedisServer()
    server.start()
    try:
        watching = shop.start("status", "--watch", "--every", "0.1", "--store", server.url)
        watching.until("no jobs yet", times=2)
        server.stop()
        watching.until("cannot be reached")
        seen = watching.said.count("no jobs yet")
        server.start()
        watching.until("no jobs yet", times=seen + 2)
        assert watching.stop(signal.SIGINT) == 0
    finally:
        server.remove()
