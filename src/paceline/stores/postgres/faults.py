"""Errors of the driver and of the functions in the database, as the errors that every store raises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from paceline.errors import (
    ConfigError,
    GroupFull,
    JobNotFound,
    MoveNotAllowed,
    NeverFits,
    PacelineError,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
)
from paceline.job import JobState

OURS = "PL001"
"""What the functions raise when the caller is wrong; the detail says how."""
AGAIN = {"40001", "40P01", "55P03"}
"""Two transactions were in each other's way: the whole step may be tried again."""
GONE = ("08", "57P", "53300", "57014")
"""The connection or the server is gone, or has no room for us."""
MAY_NOT = (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)
"""A role that may only read works all the same: others note what it cannot."""
OLD = {"3F000", "42P01", "42883", "42703", "42704"}
"""A schema, table, function, column or type that should be there is not."""

STATES = (
    JobState.WAITING,
    JobState.DELAYED,
    JobState.ACTIVE,
    JobState.COMPLETED,
    JobState.FAILED,
    JobState.CANCELLED,
)
"""The states by the numbers they have in the database, from 1 on."""
NUMBERS = {state: number for number, state in enumerate(STATES, 1)}


def translated(error: psycopg.Error) -> PacelineError:
    """The error to raise instead; the driver's own is its cause."""
    code = error.sqlstate or ""
    if code == OURS:
        return fault(json.loads(error.diag.message_detail or "{}"))
    if not code and isinstance(error, psycopg.ProgrammingError):
        # The driver itself could not read it; nobody was asked.
        return ConfigError(f"the URL or an option of the store is wrong: {_said(error)}", option="url")
    if code in OLD:
        return SchemaMismatch(
            f"the schema is not the one that this version needs ({_said(error)}); run `paceline migrate`, or open the "
            "store with migrate=True"
        )
    if code == "42501":
        return StoreError(f"the database role may not do this ({_said(error)}); grant it what the docs list")
    if code in AGAIN or code.startswith(GONE) or isinstance(error, psycopg.OperationalError):
        return StoreUnavailable(f"PostgreSQL cannot be used now: {_said(error)}")
    return StoreError(f"PostgreSQL refused: {_said(error)}")


def fault(detail: dict[str, Any]) -> PacelineError:
    """What a function in the database said about a call that it refused."""
    match detail.get("error"):
        case "group full":
            return GroupFull(detail["group"], detail["size"], detail["max_size"])
        case "never fits":
            return NeverFits(detail["limit"], detail["cost"], detail["allowed"])
        case "not found":
            return JobNotFound(detail["id"])
        case "not allowed":
            return MoveNotAllowed(detail["id"], STATES[detail["state"] - 1], detail["move"], detail.get("holder"))
        case "no limit":
            known = ", ".join(detail["known"]) or "none"
            name = detail["limit"]
            return ConfigError(f"there is no limit {name!r}; declared are: {known}", option="limit", value=name)
        case "wrong group":
            group = detail["group"]
            by_group = detail["by_group"]
            wanted = "a group, because the limit is per group" if by_group else "no group: the limit is not per group"
            name = detail["limit"]
            return ConfigError(
                f"limit {name!r} with group={group!r} is wrong: expected {wanted}", option="group", value=group
            )
        case "not per group":
            name, group = detail["limit"], detail["group"]
            text = f"limit {name!r} with group={group!r} is wrong: the limit is not per group"
            return ConfigError(text, option="group", value=group)
        case "isolation":
            return ConfigError(
                "default_transaction_isolation is wrong: expected 'read committed' for the role that Paceline uses "
                "(ALTER ROLE … SET default_transaction_isolation = 'read committed')",
                option="default_transaction_isolation",
            )
    return StoreError(f"PostgreSQL refused: {detail}")


@contextmanager
def as_ours() -> Iterator[None]:
    """Whatever the driver raises inside leaves as one of our errors."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error) from error
    except OSError as error:
        raise StoreUnavailable(f"PostgreSQL cannot be reached: {error}") from error


def may_try_again(error: BaseException) -> bool:
    """True when nothing was written because two transactions were in each other's way."""
    return isinstance(error, psycopg.Error) and error.sqlstate in AGAIN


def _said(error: psycopg.Error) -> str:
    return " ".join(str(error.diag.message_primary or error).split())
