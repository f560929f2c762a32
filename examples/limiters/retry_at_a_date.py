"""`throw new RetryableJobError("Rate limited by API", retryDate)`: the job is tried again at that date.

`Retry(at=…)` is this job's own affair: it uses an attempt, and other jobs go on. See `hold_after_a_429.py` for the
answer that concerns everybody.
"""

import asyncio
from datetime import timedelta

from paceline import App, Retry
from paceline.testing import virtual_time

ANSWERS = [(429, {"Retry-After": "90"}), (200, {})]


async def main() -> tuple[list[float], str, int]:
    """When it was tried, what it returned, and how many attempts it took."""
    async with virtual_time() as time:
        began = time.now()
        answers = iter(ANSWERS)
        app = App(time.store)

        @app.task(attempts=3)
        async def api_job(url: str) -> str:
            status, headers = next(answers)
            if status == 429:
                seconds = int(headers.get("Retry-After", "60"))
                raise Retry(at=time.now() + timedelta(seconds=seconds), reason="Rate limited by API")
            return f"{url}: {status}"

        job = await api_job.enqueue("https://example.org")
        async with app.worker():
            await time.advance("5m")
        tries = [(start.at - began).total_seconds() for start in time.starts()]
        return tries, await job.result(), job.attempts_made


if __name__ == "__main__":
    print(asyncio.run(main()))
