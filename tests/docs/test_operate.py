"""The table of what `why` says is complete and says it in the same words."""

from __future__ import annotations

import re
from pathlib import Path

from paceline import App, Concurrency, Job, Rate, RateLimited
from paceline.testing import VirtualTime

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "operate.md").read_text()
ROWS = re.findall(r"^\| (.+?) \|", PAGE.split("| it says | do |")[1].split("\n\n")[0], re.MULTILINE)
PATTERNS = {row: re.compile(re.escape(row).replace("…", ".*")) for row in ROWS}


async def test_every_reason_is_in_the_table_and_every_row_is_a_reason(paceline_time: VirtualTime) -> None:
    app = App(paceline_time.store)
    app.limit("rate", Rate(1, per="1m"), tasks=["often"])
    app.limit("slots", Concurrency(1), tasks=["long"])
    app.limit("refused", Rate(9, per="1m"), tasks=["refuse"])
    app.limit("held", Rate(9, per="1m"), tasks=["upkeep"])
    app.limit("tokens", Rate(10, per="1m"), tasks=["big", "small"])
    queue = app.queue()

    @app.task()
    async def often() -> None: ...

    @app.task()
    async def long() -> None:
        await paceline_time.sleep("1h")

    @app.task()
    async def refuse() -> None:
        raise RateLimited(retry_after=60)

    @app.task()
    async def upkeep() -> None: ...

    @app.task()
    async def big() -> None: ...

    @app.task()
    async def small() -> None: ...

    @app.task()
    async def free() -> None: ...

    waiting: list[Job[None]] = [(await task.enqueue_many([()] * 3))[-1] for task in (often, long)]
    waiting.append(await refuse.enqueue())
    await app.hold("held", for_="10m", reason="maintenance")
    waiting.append(await upkeep.enqueue())
    await small.enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
        waiting.append(await big.using(cost=10).enqueue())
        await paceline_time.advance("1s")
        waiting.append(await small.using(group="other").enqueue())
        waiting.append(await free.using(delay="1m").enqueue())
        waiting.append(await queue.add("nobody knows this"))
        await queue.pause(group="tenant-7")
        waiting.append(await free.using(group="tenant-7").enqueue())
        said = [(await job.explain()).text for job in waiting]
    said.append((await (await free.enqueue()).explain()).text)

    reasons = {
        part for text in said for part in text.partition(": ")[2].split("; ") if "the earliest start" not in part
    }
    unknown = [reason for reason in reasons if not any(pattern.fullmatch(reason) for pattern in PATTERNS.values())]
    unused = [row for row, pattern in PATTERNS.items() if not any(pattern.fullmatch(reason) for reason in reasons)]
    assert (unknown, unused) == ([], [])
