"""A job queue that holds the pace: it starts as many jobs as your limits allow, and never one more.

Each name is imported from its module when it is first used, so that `import paceline` costs next to nothing.
"""

from importlib import import_module as _import_module

TYPE_CHECKING = False  # a type checker takes it for true; importing `typing` for it costs more than all of this
if TYPE_CHECKING:
    from paceline.app import App, LimitState
    from paceline.errors import (
        ConfigError,
        EnqueueError,
        GroupFull,
        JobCancelled,
        JobFailed,
        JobNotFound,
        LeaseLost,
        MissingExtra,
        MoveNotAllowed,
        NeverFits,
        NotSerializable,
        PacelineError,
        PayloadTooLarge,
        QueueClosed,
        SchemaMismatch,
        StoreError,
        StoreUnavailable,
        WrongArguments,
    )
    from paceline.job import Blocked, Explanation, Job, JobState
    from paceline.lifecycle.pace import LimiterProtocol
    from paceline.lifecycle.run import current_job
    from paceline.limiter import CompositeLimiter, Limiter
    from paceline.limits import AllOf, Backoff, Concurrency, Delay, EvenlySpaced, GroupLimits, Limit, Rate, Unlimited
    from paceline.options import Exponential, Group, Unique
    from paceline.queue import Queue, Start
    from paceline.stores import open_store
    from paceline.stores.interface import Store
    from paceline.task import Task
    from paceline.upkeep.permits import Permit
    from paceline.verdicts import Fail, RateLimited, Retry
    from paceline.worker import Worker

del TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "App",
    "Queue",
    "Worker",
    "Limiter",
    "CompositeLimiter",
    "LimiterProtocol",
    "Permit",
    "Task",
    "Job",
    "JobState",
    "current_job",
    "Rate",
    "Concurrency",
    "Delay",
    "EvenlySpaced",
    "Unlimited",
    "AllOf",
    "Limit",
    "GroupLimits",
    "Backoff",
    "LimitState",
    "Group",
    "Unique",
    "Exponential",
    "RateLimited",
    "Retry",
    "Fail",
    "Start",
    "Explanation",
    "Blocked",
    "Store",
    "open_store",
    "PacelineError",
    "ConfigError",
    "EnqueueError",
    "GroupFull",
    "NeverFits",
    "PayloadTooLarge",
    "NotSerializable",
    "WrongArguments",
    "QueueClosed",
    "JobNotFound",
    "MoveNotAllowed",
    "JobFailed",
    "JobCancelled",
    "LeaseLost",
    "StoreError",
    "StoreUnavailable",
    "SchemaMismatch",
    "MissingExtra",
    "__version__",
]

_MODULES = {
    "app": "App LimitState",
    "errors": "ConfigError EnqueueError GroupFull JobCancelled JobFailed JobNotFound LeaseLost MissingExtra "
    "MoveNotAllowed NeverFits NotSerializable PacelineError PayloadTooLarge QueueClosed "
    "SchemaMismatch StoreError StoreUnavailable WrongArguments",
    "job": "Blocked Explanation Job JobState",
    "lifecycle.pace": "LimiterProtocol",
    "lifecycle.run": "current_job",
    "limiter": "CompositeLimiter Limiter",
    "limits": "AllOf Backoff Concurrency Delay EvenlySpaced GroupLimits Limit Rate Unlimited",
    "options": "Exponential Group Unique",
    "queue": "Queue Start",
    "stores": "open_store",
    "upkeep.permits": "Permit",
    "stores.interface": "Store",
    "task": "Task",
    "verdicts": "Fail RateLimited Retry",
    "worker": "Worker",
}
_HOMES = {name: f"paceline.{module}" for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = _import_module(_HOMES[name])
    except AttributeError as error:
        # As an AttributeError it would be taken for "there is no such name", and its cause be hidden.
        raise ImportError(f"{_HOMES[name]} cannot be imported: {error}", name=_HOMES[name]) from error
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
