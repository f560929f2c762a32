"""The checks that many options share: names, counts, flags."""

from __future__ import annotations

from paceline.errors import ConfigError, require

MAX_NAME = 255


def check_name(name: object, *, option: str) -> str:
    """Names of queues, tasks, groups and limits: text of 1 to 255 characters without control characters."""
    if not (isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()):
        text = repr(name)
        shown = text if len(text) <= 80 else text[:77] + "..."
        expected = f"text of 1 to {MAX_NAME} characters without control characters"
        raise ConfigError(f"{option}={shown} is wrong: expected {expected}", option=option, value=name)
    return name


def check_count(value: object, *, option: str, most: int = 2**53) -> int:
    """A whole number of at least 1; `True` and 1.0 are no counts."""
    valid = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
    require(valid, option, value, "a whole number of at least 1")
    return value  # type: ignore[return-value]  # checked in the line above


def check_flag(value: object, *, option: str) -> bool:
    """True or False, nothing that only looks like it."""
    require(isinstance(value, bool), option, value, "True or False")
    return value  # type: ignore[return-value]  # checked in the line above
