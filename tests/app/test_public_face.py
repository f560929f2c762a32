"""What `import paceline` gives, and what it must not pull in."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import paceline
from paceline import (
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

CONTRACT = [
    "App",
    "Queue",
    "Worker",
    "Limiter",
    "CompositeLimiter",
    "LimiterProtocol",
    "Permit",
    "Task",
    "Job",
    "current_job",
    "open_store",
    "Store",
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
]

ERRORS = [
    GroupFull("tenant-1", 3, 3),
    NeverFits("openai", 7, 5),
    PayloadTooLarge(2, 1),
    JobNotFound("a"),
    MoveNotAllowed("a", "completed", "promote"),
    JobFailed("a", "boom"),
    JobCancelled("a"),
    LeaseLost("a"),
    MissingExtra("postgres", "postgresql://"),
]


@pytest.mark.parametrize("name", CONTRACT)
def test_every_name_of_the_contract_imports_from_paceline(name: str) -> None:
    assert name in paceline.__all__
    assert getattr(paceline, name) is not None


def test_all_lists_every_public_name_once_and_nothing_that_is_missing() -> None:
    assert len(set(paceline.__all__)) == len(paceline.__all__)
    assert all(hasattr(paceline, name) for name in paceline.__all__)
    public = {
        name
        for name, value in vars(paceline).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert public == set(paceline.__all__) - {"__version__"}


def test_virtual_time_imports_from_paceline_testing() -> None:
    from paceline.testing import virtual_time

    assert callable(virtual_time)


@pytest.mark.parametrize(
    ("program", "more"),
    [
        ("import paceline", ["asyncio", "msgspec", "typing", "click", "paceline.app"]),
        ("from paceline import *", ["click", "multiprocessing", "sqlite3", "paceline.cli", "paceline.testing"]),
        ("import paceline.cli", ["asyncio", "click", "msgspec", "paceline.app"]),
    ],
)
def test_importing_paceline_loads_no_extra_and_no_test_tool(program: str, more: list[str]) -> None:
    unwanted = ["psycopg", "psycopg_pool", "redis", "hiredis", "pysqlite3", "rich", "starlette", "uvicorn", "jinja2"]
    unwanted += ["pytest", "hypothesis", *more]
    program += f"; import sys; print([name for name in {unwanted} if name in sys.modules])"
    source = Path(paceline.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": str(source)}, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("error", "parent"),
    [
        (ConfigError, PacelineError),
        (EnqueueError, PacelineError),
        (GroupFull, EnqueueError),
        (NeverFits, EnqueueError),
        (PayloadTooLarge, EnqueueError),
        (NotSerializable, EnqueueError),
        (QueueClosed, EnqueueError),
        (JobNotFound, PacelineError),
        (MoveNotAllowed, PacelineError),
        (JobFailed, PacelineError),
        (JobCancelled, PacelineError),
        (LeaseLost, PacelineError),
        (StoreError, PacelineError),
        (StoreUnavailable, StoreError),
        (SchemaMismatch, StoreError),
        (MissingExtra, PacelineError),
        (PacelineError, Exception),
    ],
    ids=lambda error: error.__name__,
)
def test_errors_form_the_family_of_the_contract(error: type[Exception], parent: type[Exception]) -> None:
    assert error.__bases__ == (parent,)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_travel_between_processes_with_their_values(error: Exception) -> None:
    import pickle

    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def test_group_full_says_group_size_and_maximum() -> None:
    error = GroupFull("tenant-1", 3, 3)
    assert (error.group, error.size, error.max_size) == ("tenant-1", 3, 3)
    assert "'tenant-1'" in str(error) and "3" in str(error)


def test_move_not_allowed_says_state_and_what_was_wanted() -> None:
    error = MoveNotAllowed("a", "completed", "promote")
    assert (error.state, error.wanted) == ("completed", "promote")
    assert "completed" in str(error) and "promote" in str(error)


def test_missing_extra_has_the_install_command_in_its_text() -> None:
    assert "pip install 'paceline[postgres]'" in str(MissingExtra("postgres", "postgresql://"))
