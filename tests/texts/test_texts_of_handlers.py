"""No text that a handler raises, returns, notes or logs stops a worker or disturbs another job."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline import Job, Queue, Worker

from .conftest import STORES
from .misbehaving import (
    ERRORS,
    NOTES,
    RESULTS,
    TEXTS,
    misbehave,
    misbehave_as_one,
    misbehave_plainly,
    misbehave_plainly_as_one,
    misbehave_together,
)

WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "loop": (misbehave, {"concurrency": 3}),
    "thread": (misbehave_plainly, {"concurrency": 3}),
    "batch": (misbehave_together, {"concurrency": 1, "batch": 4}),
}
PATHS = [*ERRORS, *RESULTS, *NOTES]


def share(request: pytest.FixtureRequest, texts: Sequence[str], part: int, parts: int) -> list[tuple[str, str]]:
    """The paths with the texts that are one way's turn on this store, out of so many ways.

    All ways together have every path with every text on every store, and all stores together have them in every way.
    """
    turn = part + list(STORES).index(request.node.callspec.params["store"])
    places = [(path, name, place + number) for place, path in enumerate(PATHS) for number, name in enumerate(texts)]
    return [(path, name) for path, name, place in places if (place - turn) % parts == 0]


async def run_all(
    store: Any, kinds: list[tuple[str, str]], handler: Any = misbehave, **options: Any
) -> tuple[list[Job[Any]], list[Job[Any]]]:
    """Nasty jobs among ordinary ones, by a worker that must end in order; gives both after the run."""
    queue = Queue("line", store=store)
    nasty, well = [], []
    for kind in kinds:
        nasty.append(await queue.add("work", kind, attempts=2))
        well.append(await queue.add("work", ("well", "")))
    async with asyncio.timeout(60):
        await Worker("line", handler, store=store, lease="10s", **options).run(until_empty=True)
    return [await job.refresh() for job in nasty], [await job.refresh() for job in well]


@pytest.mark.parametrize("way", WAYS)
async def test_a_queue_serves_its_other_jobs_whatever_text_one_job_has(store, way, request):
    handler, options = WAYS[way]
    kinds = share(request, list(TEXTS), list(WAYS).index(way), len(WAYS))

    nasty, well = await run_all(store, kinds, handler, **options)

    check(kinds, nasty, well)


async def test_a_process_brings_every_text_home(store, monkeypatch, request):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    handler = importlib.import_module("misbehaving").misbehave_plainly
    kinds = share(request, ("both", "huge and nasty"), 0, 2)

    nasty, well = await run_all(store, kinds, handler, concurrency=2, isolation="process")

    check(kinds, nasty, well)


@pytest.mark.parametrize("handler", [misbehave_as_one, misbehave_plainly_as_one], ids=["loop", "thread"])
async def test_a_batch_ends_whatever_object_it_raises_or_returns(store, handler):
    queue = Queue("line", store=store)
    kinds = [path for path in PATHS for _ in range(3)]
    jobs = await queue.add_many([("work", (path, "both")) for path in kinds])

    async with asyncio.timeout(60):
        await Worker("line", handler, store=store, lease="10s", concurrency=1, batch=3).run(until_empty=True)

    for path, job in zip(kinds, [await job.refresh() for job in jobs], strict=True):
        assert (job.state in ("completed", "failed"), job.crashes) == (True, 0), path


@pytest.mark.parametrize("handler", [misbehave, misbehave_plainly], ids=["loop", "thread"])
async def test_an_error_whose_attributes_cannot_be_read_is_shown_with_its_name_and_text(store, handler):
    kinds = [(path, "control") for path in ("closed", "exits", "hidden", "disguised")]

    nasty, _ = await run_all(store, kinds, handler)

    module = misbehave.__module__
    names = [f"{module}.{name}: {TEXTS['control']}" for name in ("Closed", "Exits", "Hidden", "Disguised")]
    assert [job.error for job in nasty] == names


def check(kinds: list[tuple[str, str]], nasty: list[Job[Any]], well: list[Job[Any]]) -> None:
    """Every job has ended, and what people read is bounded and can be printed and sent anywhere."""
    assert [job.result_value for job in well] == ["well"] * len(kinds)
    for kind, job in zip(kinds, nasty, strict=True):
        assert (job.state in ("completed", "failed"), job.crashes) == (True, 0), kind
        assert job.state == "completed" or job.error, kind
        for text, most in ((job.error, 8192), (job.progress.message, 1024), *((line, 8192) for line in job.logs)):
            if text is not None:
                assert (len(text) <= most, "\x00" in text) == (True, False), kind
                assert text.encode().decode() == text


async def test_texts_for_people_show_what_cannot_be_kept_as_escapes(store):
    kinds = [("error", "nul"), ("error", "surrogate"), ("message", "nul"), ("log", "surrogate")]

    nasty, _ = await run_all(store, kinds)

    assert [job.error for job in nasty[:2]] == [r"ValueError: a\x00b", r"ValueError: no such file \udcff"]
    assert nasty[2].progress.message == r"a\x00b"
    assert nasty[3].logs == (r"no such file \udcff",)


async def test_texts_for_people_say_how_long_they_were(store):
    nasty, _ = await run_all(store, [("error", "huge"), ("message", "huge"), ("log", "huge")])

    assert nasty[0].error.startswith("ValueError: xxx")
    assert nasty[0].error.endswith("x… (1,200,012 characters)")
    assert nasty[1].progress.message.endswith("x… (1,200,000 characters)")
    assert nasty[2].logs[0].endswith("x… (1,200,000 characters)")


async def test_nul_in_data_and_results_comes_back_as_it_was(store):
    queue = Queue("line", store=store)
    data = {"a\x00": ["\x00", {"\x00b": "c\x00"}], "d": "\x00" * 1000}

    async def echo(job: Job[Any]) -> Any:
        return job.data

    job = await queue.add("work", data)
    await Worker("line", echo, store=store).run(until_empty=True)

    found = await queue.get(job.id)
    assert found.data == data
    assert found.result_value == data


async def test_an_exception_group_is_shown_with_its_parts(store):
    queue = Queue("line", store=store)

    async def handler(job: Job[Any]) -> None:
        async with asyncio.TaskGroup() as together:
            together.create_task(broken("one"))
            together.create_task(broken("two"))

    async def broken(text: str) -> None:
        raise ValueError(text)

    job = await queue.add("work")
    await Worker("line", handler, store=store).run(until_empty=True)

    assert (await job.refresh()).error == (
        "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)\n  ValueError: one\n  ValueError: two"
    )


async def test_the_log_of_a_job_keeps_its_last_lines(store):
    queue = Queue("line", store=store)

    async def handler(job: Job[Any]) -> None:
        for number in range(30 if job.task == "long" else 1100):
            await job.log(f"{number} " + ("é" * 3000 if job.task == "long" else ""))

    long, many = await queue.add_many([("long", None), ("many", None)])
    await Worker("line", handler, store=store, concurrency=2).run(until_empty=True)

    lines = (await long.refresh()).logs
    assert lines[-1].startswith("29 ")
    assert len(lines) == 65536 // (6000 + 3)
    assert sum(len(line.encode()) for line in lines) <= 65536
    assert [line.split()[0] for line in (await many.refresh()).logs] == [str(n) for n in range(100, 1100)]
