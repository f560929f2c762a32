"""The names, order and defaults of parameters that the contract promises."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from paceline import (
    App,
    Backoff,
    CompositeLimiter,
    Concurrency,
    Delay,
    EvenlySpaced,
    Exponential,
    Fail,
    Group,
    GroupLimits,
    Job,
    Limit,
    Limiter,
    Queue,
    Rate,
    RateLimited,
    Retry,
    Unique,
    Worker,
    open_store,
)
from paceline.testing import VirtualTime, virtual_time

# Positional ones as written, keyword-only ones behind "*"; "=" gives the default.
CONTRACT: list[tuple[Any, str]] = [
    (App, "url='memory://', *, namespace"),
    (open_store, "url"),
    (App.limit, "self, name, kind, *, queues=None, tasks=None, by=None, overrides=None, backoff=None"),
    (App.override, "self, name, kind, *, group=None, reason=None, expires=None"),
    (App.hold, "self, name, *, until=None, for_=None, group=None, reason=None"),
    (App.release, "self, name"),
    (App.drop_limit, "self, name"),
    (App.limiter, "self, name, kind=None"),
    (App.limit_state, "self, name, group=None"),
    (App.worker, "self, *, queues=None, concurrency=10, workers=1, limiter=None"),
    (App.get, "self, job_id"),
    (Rate, "max, per, guard=None"),
    (Concurrency, "max"),
    (Delay, "gap='50ms'"),
    (EvenlySpaced, "max, per"),
    (Limit, "name, kind, *, queues=None, tasks=None, by=None, overrides=None, backoff=None"),
    (Backoff, "initial='1s', multiplier=2, maximum='10m'"),
    (GroupLimits, "concurrency=None, limiter=None"),
    (Group, "id, max_size=None"),
    (Unique, "key=None, ttl=None"),
    (Exponential, "base, cap='24h', jitter=0.25"),
    (Queue, "name, *, store, limits=()"),
    (Queue.add, "self, task, data=None"),
    (Queue.list, "self, state=None, *, task=None, group=None, limit=100, after=None"),
    (Queue.pause, "self, *, task=None, group=None"),
    (Queue.resume, "self, *, task=None, group=None"),
    (Queue.clean, "self, state, older_than"),
    (Queue.obliterate, "self, force=False"),
    (Queue.retry_jobs, "self, state='failed'"),
    (Queue.starts, "self, since=None"),
    (Job.result, "self, timeout=None"),
    (Worker, "queue, handler, *, store, concurrency=1, limiter=None, group=None, batch=None, lease='30s'"),
    (Worker.run, "self, until_empty=False"),
    (Worker.stop, "self, grace='25s'"),
    (RateLimited, "retry_after=None, *, limit=None"),
    (RateLimited.from_response, "status, headers, *, limit=None"),
    (Retry, "after=None"),
    (Fail, "reason"),
    (Limiter, "name, kind, *, store, backoff=None"),
    (Limiter.acquire, "self, cost=1, *, group=None, timeout=None"),
    (Limiter.try_acquire, "self, cost=1, *, group=None"),
    (Limiter.set_next_available_time, "self, when"),
    (CompositeLimiter, "limiters=()"),
    (CompositeLimiter.add_limiter, "self, limiter"),
    (virtual_time, "url='memory://'"),
    (VirtualTime.advance, "self, duration"),
    (VirtualTime.starts, "self, task=None"),
]


@pytest.mark.parametrize(("call", "promised"), CONTRACT, ids=[getattr(c, "__qualname__", str(c)) for c, _ in CONTRACT])
def test_parameters_have_the_names_order_and_defaults_of_the_contract(call: Any, promised: str) -> None:
    real = list(inspect.signature(call).parameters.values())
    by_name = {parameter.name: parameter for parameter in real}
    keyword_only = False
    for position, word in enumerate(part.strip() for part in promised.split(",")):
        if word == "*":
            keyword_only = True
            continue
        name, _, default = word.partition("=")
        parameter = by_name[name]
        if default:
            assert repr(parameter.default) == default
        if not keyword_only:
            assert real[position].name == name
        assert (parameter.kind is parameter.KEYWORD_ONLY) == keyword_only, name


def test_the_decorator_has_the_options_and_defaults_of_the_contract() -> None:
    from typing import get_overloads

    options = inspect.signature(get_overloads(App.task)[-1]).parameters
    promised = {
        "name": None,
        "queue": "default",
        "attempts": 1,
        "retry_delay": None,
        "timeout": None,
        "priority": 0,
        "cost": 1,
        "unique": None,
        "isolation": "thread",
    }
    assert {name: options[name].default for name in promised} == promised
    assert all(options[name].kind is inspect.Parameter.KEYWORD_ONLY for name in promised)
