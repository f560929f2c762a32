"""A job queue that holds the pace: it starts as many jobs as your limits allow, and never one more."""

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
)
from paceline.job import Blocked, Explanation, Job, JobState
from paceline.lifecycle.pace import LimiterProtocol
from paceline.lifecycle.run import current_job
from paceline.limiter import CompositeLimiter, Limiter, Permit
from paceline.limits import AllOf, Backoff, Concurrency, Delay, EvenlySpaced, GroupLimits, Limit, Rate, Unlimited
from paceline.options import Exponential, Group, Unique
from paceline.queue import Queue, Start
from paceline.stores import open_store
from paceline.stores.interface import Store
from paceline.task import Task
from paceline.verdicts import Fail, RateLimited, Retry
from paceline.worker import Worker

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
