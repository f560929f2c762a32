"""Ends of runs that PostgreSQL refuses for what they say: they take no other end along, and stop no worker."""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Callable, Sequence

from paceline.errors import SchemaMismatch, StoreError, StoreUnavailable
from paceline.stores.interface import Finish, Outcome
from paceline.text import MAX_ERROR, clean

log = logging.getLogger("paceline.postgres")

REFUSED = (StoreError, UnicodeError, OverflowError, struct.error)
"""What the server or the driver raises for a value that it cannot take; the two below are about everything."""
Write = Callable[[Sequence[Finish]], Awaitable[list[str]]]


def is_refusal(error: Exception) -> bool:
    """True when the same call would be refused again."""
    return not isinstance(error, StoreUnavailable | SchemaMismatch)


async def write_each(write: Write, finishes: Sequence[Finish]) -> list[str]:
    """Write ends that were refused together one by one; a run whose end cannot be stored fails, and says why.

    Gives the ids of those whose leases are lost. Whatever refuses a plain failure as well is raised.
    """
    lost: list[str] = []
    for finish in finishes:
        try:
            lost += await write([finish])
        except REFUSED as error:
            if not is_refusal(error):
                raise
            text = clean(f"its end ({finish.outcome}) could not be stored: {error}", MAX_ERROR)
            lost += await write([Finish(id=finish.id, fence=finish.fence, outcome=Outcome.FAILED, error=text)])
            log.error("job %s failed: %s", finish.id, text)
    return lost
