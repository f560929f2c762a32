"""What a script refuses, and what the server says, as errors that tell what to do."""

from __future__ import annotations

from typing import Any

import redis

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
from paceline.stores.redis.layout import FORMAT
from paceline.stores.redis.records import STATES, decode_limit

_BUSY = ("LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY", "ASK", "UNKILLABLE")


def refusal(about: dict[str, Any], wanted: dict[str, Any]) -> PacelineError:
    """The error for a script's refusal; `wanted` is what it was asked."""
    match about["refusal"]:
        case "another format":
            return _another_format(about["format"])
        case "group full":
            return GroupFull(about["group"], about["size"], about["max_size"])
        case "never fits":
            return NeverFits(about["limit"], about["cost"], about["allowed"])
        case "no job":
            return JobNotFound(about["id"])
        case "move":
            return MoveNotAllowed(about["id"], STATES[about["state"]], wanted["move"], about.get("holder"))
        case "active jobs":
            hint = "obliterate while active jobs exist (stop the workers or use force=True)"
            return MoveNotAllowed(wanted["queue"], "active", hint)
        case "unknown limit":
            known = ", ".join(about["known"]) or "none"
            name = about["limit"]
            return ConfigError(f"there is no limit {name!r}; declared are: {known}", option="limit", value=name)
        case "other scope":
            old, new = decode_limit(about["old"]), decode_limit(about["new"])
            return ConfigError(
                f"limit {new.name!r} is declared as {old!r} in this store, but now as {new!r}: "
                "one name, one scope. Choose another name, or drop the old limit first",
                option="name",
                value=new.name,
            )
        case "not per group":
            text = f"limit {wanted['name']!r} with group={wanted['group']!r} is wrong: the limit is not per group"
            return ConfigError(text, option="group", value=wanted["group"])
        case "wrong group":
            group = about.get("group")
            per_group = "a group, because the limit is per group"
            expected = per_group if about.get("by") else "no group: the limit is not per group"
            return ConfigError(
                f"limit {about['limit']!r} with group={group!r} is wrong: expected {expected}",
                option="group",
                value=group,
            )
    return StoreError(f"the store refused: {about!r}")


def _another_format(number: int) -> SchemaMismatch:
    if number < 0:
        return SchemaMismatch(
            "what this namespace holds is not Paceline's: choose another namespace; nothing was changed"
        )
    return SchemaMismatch(
        f"this namespace was written in format {number} by a newer version of Paceline, and this one knows format "
        f"{FORMAT}: upgrade this program; nothing was changed"
    )


def server_error(error: redis.RedisError) -> StoreError:
    """The error for what the server answered instead of doing it."""
    text = str(error)
    word = text.split(" ", 1)[0]
    if word == "WRONGTYPE":
        return _another_format(-1)
    if word in _BUSY:
        return StoreUnavailable(f"the server cannot answer now: {text}")
    if word == "READONLY":
        return StoreUnavailable(
            f"the server is a read-only replica; give the address of the primary, or wait until it is one ({text})"
        )
    if word == "OOM":
        return StoreError(
            f"the server's memory is full: nothing was added. Workers still start, claim "
            f"and end jobs: let them catch up, or raise maxmemory ({text})"
        )
    if word == "NOPERM":
        return StoreError(
            f"the user of this URL may not do what Paceline needs: {text}. "
            "Give it the keys {paceline:*}* and the commands of docs/reference/redis.md"
        )
    if isinstance(error, redis.AuthenticationError) or word in ("WRONGPASS", "NOAUTH"):
        return StoreError(f"the server refused the user or password of the URL: {text}")
    if word == "MISCONF":
        return StoreUnavailable(f"the server does not accept writes: {text}")
    return StoreError(f"the server failed: {text}")
