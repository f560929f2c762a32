"""What a storage of limiters must answer (feature map D8, D18), asked of every store through its own calls."""

from __future__ import annotations

from paceline.clock import SECOND
from paceline.limits import Limit, Rate
from paceline.stores.interface import Hold, Target


async def test_d8_a_store_records_starts_counts_them_names_the_next_time_holds_and_clears(store, clock):
    await store.set_limits([Limit("api", Rate(2, per="10s"))])
    first = clock.now()

    await store.acquire([Target("api")], "one", 30 * SECOND, force=True)
    clock.advance("4s")
    await store.acquire([Target("api")], "two", 30 * SECOND, force=True)
    counted = await store.usage("api", None)
    await store.hold([Hold(limit="api", until=first + 30 * SECOND)])
    held = await store.usage("api", None)
    await store.clear("api", None)
    cleared = await store.usage("api", None)

    assert (counted.used, counted.opens_at) == (2, first + 10 * SECOND)
    assert (held.hold_until, held.opens_at) == (first + 30 * SECOND, first + 30 * SECOND)
    assert (cleared.used, cleared.hold_until) == (0, 0)
