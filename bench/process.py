"""What processes use, seen from outside."""

from __future__ import annotations

from typing import NamedTuple


class Usage(NamedTuple):
    """Bytes of resident memory, and seconds of processor time until now."""

    memory: int
    cpu: float


def usage_of(pid: int) -> Usage:
    """Of a process and its children."""
    import psutil

    first = psutil.Process(pid)
    together = [first, *first.children(recursive=True)]
    times = [each.cpu_times() for each in together]
    return Usage(sum(each.memory_info().rss for each in together), sum(time.user + time.system for time in times))
