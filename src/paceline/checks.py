"""The checks that many options share: names, counts, flags."""

from __future__ import annotations

from paceline.errors import ConfigError, require
from paceline.text import clean, show

MAX_NAME = 255


def check_name(name: object, *, option: str) -> str:
    """Names of queues, tasks, groups and limits: text of 1 to 255 characters without control characters."""
    if not (isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()):
        expected = f"text of 1 to {MAX_NAME} characters without control characters"
        raise ConfigError(f"{option}={show(name)} is wrong: expected {expected}", option=option, value=name)
    # A driver may write a subclass in its own way.
    return name if type(name) is str else str.__str__(name)


def check_optional_name(name: object, *, option: str) -> str | None:
    """A name, or None."""
    return None if name is None else check_name(name, option=option)


def plain_int(value: object) -> int | None:
    """A whole number without what a subclass adds, which a driver may write in its own way; None for all else."""
    return int.__int__(value) if isinstance(value, int) and not isinstance(value, bool) else None


def check_count(value: object, *, option: str, most: int = 2**53) -> int:
    """A whole number of at least 1; `True` and 1.0 are no counts."""
    number = plain_int(value)
    require(number is not None and 1 <= number <= most, option, value, "a whole number of at least 1")
    return number  # type: ignore[return-value]  # checked in the line above


def check_flag(value: object, *, option: str) -> bool:
    """True or False, nothing that only looks like it."""
    require(isinstance(value, bool), option, value, "True or False")
    return value  # type: ignore[return-value]  # checked in the line above


def check_text(value: object, *, option: str, most: int) -> str | None:
    """Text that people read, or None; what a store cannot keep is escaped, and what is too long is cut."""
    require(value is None or isinstance(value, str), option, value, "text, or None")
    return None if value is None else clean(value, most)
