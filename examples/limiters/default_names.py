"""The four service tokens: limiters under well-known names, declared once and found by name."""

import asyncio

from paceline import App, Concurrency, ConfigError, EvenlySpaced, open_store

JOB_LIMITER = "jobqueue.limiter"
CONCURRENT_JOB_LIMITER = "jobqueue.limiter.concurrent"
EVENLY_SPACED_JOB_RATE_LIMITER = "jobqueue.limiter.rate.evenlyspaced"
NULL_JOB_LIMITER = "jobqueue.limiter.null"


async def main() -> dict[str, str]:
    app = App(open_store("memory://"))
    found = {}
    try:
        app.limiter(CONCURRENT_JOB_LIMITER)
    except ConfigError as error:
        found["before it is declared"] = str(error)  # the app says how many: nobody can guess that

    app.limit(CONCURRENT_JOB_LIMITER, Concurrency(5), queues=["default"])
    app.limit(EVENLY_SPACED_JOB_RATE_LIMITER, EvenlySpaced(60, per="1m"), queues=["default"])
    for name in (JOB_LIMITER, CONCURRENT_JOB_LIMITER, EVENLY_SPACED_JOB_RATE_LIMITER, NULL_JOB_LIMITER):
        permits = [await app.limiter(name).try_acquire() for _ in range(10)]
        found[name] = f"{sum(permit is not None for permit in permits)} of 10 at once"
    return found


if __name__ == "__main__":
    for name, what in asyncio.run(main()).items():
        print(f"{name}: {what}")
