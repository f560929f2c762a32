"""A failure is in the log with its traceback, whatever else is logged, and whatever text it has."""

from __future__ import annotations

import asyncio
import importlib
import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline import Fail, Limit, Limiter, Queue, Rate, RateLimited, Retry, Worker, open_store
from paceline.cli.logs import JsonLines, TextLines
from paceline.stores.interface import Ask, Store

from .misbehaving import ERRORS, misbehave


class Strict(logging.StreamHandler[Any]):
    """A file as a program has it: UTF-8 and nothing else; what it cannot write is a problem."""

    def __init__(self) -> None:
        self.raw = io.BytesIO()
        super().__init__(io.TextIOWrapper(self.raw, encoding="utf-8", write_through=True))
        self.records: list[logging.LogRecord] = []
        self.problems: list[BaseException | None] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        self.problems.append(sys.exc_info()[1])

    @property
    def text(self) -> str:
        return self.raw.getvalue().decode()


@pytest.fixture
def memory() -> Store:
    """What is logged does not depend on the store."""
    return open_store("memory://")


@pytest.fixture
def log() -> Iterator[Strict]:
    """A program that wants warnings only."""
    handler = Strict()
    logger = logging.getLogger("paceline")
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


async def run(store: Any, handler: Any, *data: Any, job: dict[str, Any] | None = None, **options: Any) -> None:
    queue = Queue("line", store=store)
    await queue.add_many([("work", each, job or {}) for each in data])
    await Worker("line", handler, store=store, **options).run(until_empty=True)


async def nothing(job: Any) -> None:
    """The plainest handler."""


async def crash(store: Store, times: int) -> None:
    """The only job is taken by workers that die."""
    for number in range(times):
        claim = await store.claim(Ask(queues=("line",), slots=1, worker=f"dead {number}", lease=1_000))
        assert len(claim.jobs) == 1
        await asyncio.sleep(0.01)


def levels(log: Strict) -> list[tuple[str, str]]:
    return [(record.levelname, record.event) for record in log.records if record.name == "paceline.job"]


async def test_a_failure_is_a_warning_and_the_last_one_an_error_both_with_a_traceback(store, log):
    async def handler(job: Any) -> None:
        raise ValueError("deep trouble")

    await run(store, handler, None, job={"attempts": 2})

    assert levels(log) == [("WARNING", "retry"), ("ERROR", "failed")]
    assert log.text.count("Traceback (most recent call last)") == 2
    assert log.text.count('raise ValueError("deep trouble")') == 2
    assert "lifecycle" not in log.text
    assert all(record.exc_info[1].args == ("deep trouble",) for record in log.records[:2])


async def test_what_is_no_failure_is_not_logged_above_info(memory, log):
    seen: list[int] = []

    async def handler(job: Any) -> None:
        seen.append(1)
        if len(seen) == 1:
            raise RateLimited(retry_after="10ms")

    await run(memory, handler, None)

    assert len(seen) == 2
    assert levels(log) == []


async def test_verdicts_are_logged_without_a_traceback_unless_another_error_led_to_them(memory, log):
    async def handler(job: Any) -> None:
        if job.data == "fail":
            raise Fail("closed")
        if job.data == "retry":
            raise Retry(after=0, reason="later")
        try:
            raise KeyError("the reason")
        except KeyError as error:
            raise Fail("not found") from error

    await run(memory, handler, "fail", "retry", "from")

    assert [bool(record.exc_info) for record in log.records] == [False, False, True]
    assert "KeyError: 'the reason'" in log.text


async def test_timeouts_and_results_that_cannot_be_stored_are_errors_in_the_log(memory, log):
    async def handler(job: Any) -> Any:
        if job.data == "slow":
            await asyncio.sleep(30)
        return Path("x")

    await run(memory, handler, "slow", "result", job={"timeout": "50ms"}, concurrency=2)

    assert levels(log) == [("ERROR", "failed")] * 2
    assert "timed out after 50ms" in log.text
    assert "the handler succeeded" in log.text


async def test_the_parts_of_an_exception_group_are_in_the_log(memory, log):
    async def broken() -> None:
        raise ValueError("the part")

    async def handler(job: Any) -> None:
        async with asyncio.TaskGroup() as together:
            together.create_task(broken())

    await run(memory, handler, None)

    assert 'raise ValueError("the part")' in log.text


async def test_the_traceback_of_a_process_is_the_childs(memory, log, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    handlers = importlib.import_module("misbehaving")

    await run(memory, handlers.misbehave_plainly, ("error", "nul"), ("silly number", "nul"), isolation="process")

    assert levels(log) == [("ERROR", "failed")] * 2
    assert log.text.count("raise ERRORS[path](TEXTS[name])") == 2


@pytest.mark.parametrize("lines", [logging.Formatter(), TextLines(), JsonLines()], ids=["plain", "text", "json"])
async def test_every_failure_can_be_written_to_a_file_in_utf_8(memory, log, lines):
    log.setFormatter(lines)
    kinds = [(path, name) for path in ERRORS for name in ("both", "huge and nasty")]

    await run(memory, misbehave, *kinds, concurrency=5)

    assert log.problems == []
    assert len(log.records) == len(kinds)
    assert max(len(log.format(record)) for record in log.records) < 5 * 40_000
    assert "\\udc80" in log.text


async def test_a_handler_of_the_program_that_raises_does_not_end_the_worker(memory, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("the disk is full")

    logger = logging.getLogger("paceline.job")
    logger.addHandler(broken := Broken())
    logger.setLevel(logging.INFO)
    try:
        await run(memory, misbehave, ("error", "nul"), ("well", ""))
    finally:
        logger.removeHandler(broken)
        logger.setLevel(logging.NOTSET)

    assert (await Queue("line", store=memory).counts())["completed"] == 1


def test_a_program_that_configures_no_logging_sees_its_failures(tmp_path):
    (tmp_path / "program.py").write_text(
        "import asyncio\n"
        "from paceline import App\n"
        "app = App()\n"
        "@app.task()\n"
        "async def boom() -> None:\n"
        "    raise ValueError('deep trouble')\n"
        "async def main() -> None:\n"
        "    await boom.enqueue()\n"
        "    await app.worker().run(until_empty=True)\n"
        "asyncio.run(main())\n"
    )

    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0
    assert "boom" in done.stderr
    assert "raise ValueError('deep trouble')" in done.stderr


async def test_a_job_that_the_store_fails_because_it_can_never_fit_is_an_error_once(store, log):
    queue = Queue("line", store=store, limits=[Limit("api", Rate(5, per="1m"))])
    job = await queue.add("big", cost=3, group="acme", keep=0)
    await store.set_limits([Limit("api", Rate(2, per="1m"))])

    await Worker("line", nothing, store=store).run(until_empty=True)
    await Worker("line", nothing, store=store).run(until_empty=True)

    assert levels(log) == [("ERROR", "failed")]
    never = "NeverFits: the job costs 3, but limit 'api' never allows more than 2"
    assert f"big [acme] {job.id} failed: {never}" in log.text


async def test_a_job_whose_lease_ended_for_the_third_time_is_an_error_once(store, log):
    job = await Queue("line", store=store).add("bad")
    await crash(store, 3)

    await Worker("line", nothing, store=store).run(until_empty=True)
    await Worker("line", nothing, store=store).run(until_empty=True)

    assert levels(log) == [("ERROR", "failed")]
    assert f"bad {job.id} failed: crashed: it took down its worker 3 times" in log.text


async def test_a_limiter_that_takes_back_the_third_lease_logs_the_job(store, log):
    await Queue("line", store=store).add("bad")
    limiter = Limiter("api", Rate(9, per="1m"), store=store)
    await limiter.try_acquire()
    await crash(store, 3)

    await limiter.try_acquire()
    await limiter.try_acquire()

    assert levels(log) == [("ERROR", "failed")]
