"""Handlers that tests run in processes of their own: a child imports them by name, so they live in a plain module."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time

from paceline import Fail, RateLimited, Retry, current_job


class StrangeError(Exception):
    """An error that does not survive the trip between processes as it is."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.code = code


def describe(job):
    """What the child sees."""
    return {
        "pid": os.getpid(),
        "data": job.data,
        "current": current_job().id == job.id,
        "attempt": job.attempts_made,
        "group": job.group,
    }


async def describe_async(job):
    await asyncio.sleep(0)
    return describe(job)


def note(job):
    job.progress_sync(50, "half way")
    job.log_sync("from the child")
    return "noted"


async def note_async(job):
    await job.progress(50, "half way")
    await job.log("from the child")
    return "noted"


def fail(job):
    raise ValueError("not good enough")


def fail_strangely(job):
    raise StrangeError(7, detail="very odd")


def returns_no_json(job):
    return object()


def exits(job):
    raise SystemExit(3)


def hang(job):
    """Says where it runs, then takes for ever; returns at once when asked to be quick."""
    if job.data == "quick":
        return
    job.log_sync(str(os.getpid()))
    time.sleep(600)


def hang_deaf(job):
    """The same, and ends for no signal that can be ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(job)


def dies_twice(job):
    if job.crashes < 2:
        os._exit(9)
    return "alive"


def dies_always(job):
    os._exit(9)


def kills_itself(job):
    os.kill(os.getpid(), signal.SIGKILL)


def says_fail(job):
    raise Fail("the account is closed")


def says_retry(job):
    if job.attempts_made == 1:
        raise Retry(after="1h", reason="not ready yet")
    return "too soon"


def says_rate_limited(job):
    if not job.record.returns:
        raise RateLimited(retry_after="50ms")
    return "came back"


def interrupts(job):
    if job.data == 0:
        raise KeyboardInterrupt


async def cancels(job):
    if job.data == 0:
        raise asyncio.CancelledError


def hang_in_c(job):
    """Says where it runs, then holds the interpreter for ever: no other thread of the process runs again."""
    job.log_sync(str(os.getpid()))
    re.match(r"(a+)+$", "a" * 60 + "b")
