"""The end of a batch: one for each of its jobs."""

from __future__ import annotations

from typing import Any

from paceline.errors import ConfigError
from paceline.lifecycle.finish import Raised, RunEnd, Succeeded
from paceline.text import is_a


def batch_ends(end: RunEnd, size: int) -> list[RunEnd]:
    """One end per job: a list of results is taken apart, everything else counts for all."""
    if not isinstance(end, Succeeded) or end.value is None:
        return [end] * size
    try:
        return _taken_apart(end.value, size)
    except BaseException as problem:  # the code of a list of its own
        return [Raised(problem)] * size


def _taken_apart(values: Any, size: int) -> list[RunEnd]:
    if not isinstance(values, list | tuple) or len(values) != size:
        got = f"{len(values)} results" if isinstance(values, list | tuple) else f"a {type(values).__name__}"
        problem = ConfigError(f"a batch handler returned {got} for {size} jobs: expected None or one result per job")
        return [Raised(problem)] * size
    return [Raised(value) if is_a(value, BaseException) else Succeeded(value) for value in values]
