"""One limiter on each storage: the same calls give the same answers wherever the limit lives.

    python storages.py memory:// sqlite:///limits.db postgresql://localhost/app redis://localhost

`InMemoryRateLimiterStorage` is `memory://`, `SqliteRateLimiterStorage` is `sqlite:///…`, `PostgresRateLimiterStorage`
and `SupabaseRateLimiterStorage` are `postgresql://…` (`open_store(url, pooler=True)` behind a transaction pooler).
Redis and Valkey come on top.
"""

import asyncio
import sys

from paceline import Limiter, Rate, open_store


async def main(url: str) -> tuple[int, bool]:
    """How many of 150 calls are allowed; and whether there is room again after `clear()`."""
    store = open_store(url)  # the first call sets it up: there is no setup_database()
    limiter = Limiter("openai-embeddings", Rate(100, per="1h"), store=store)
    try:
        allowed = sum([await limiter.try_acquire() is not None for _ in range(150)])
        await limiter.clear()
        return allowed, await limiter.can_proceed()
    finally:
        await store.close()


if __name__ == "__main__":
    for url in sys.argv[1:] or ["memory://"]:
        print(url, asyncio.run(main(url)))
