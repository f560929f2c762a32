"""Texts of users that only people read: errors, messages, log lines, reasons. Every store, stream and terminal takes
what comes out of here: no NUL, no lone surrogate, and never more than its bound."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeGuard, TypeVar

MAX_ERROR = 8 * 1024
"""Characters of `job.error`."""
MAX_LINE = 8 * 1024
"""Characters of one line of a job's log."""
MAX_MESSAGE = 1024
"""Characters of a progress message."""
MAX_REASON = 1024
"""Characters of the reason of a hold or an override."""
MAX_TRACE = 32 * 1024
"""Characters of a traceback in the log."""
MAX_LOG_LINES = 1000
"""Lines that a job's log keeps: the last ones."""
MAX_LOG_BYTES = 64 * 1024
"""Bytes (UTF-8) that a job's log keeps."""
MAX_SHOWN = 120
"""Characters of a value in an error."""
MAX_PARTS = 100
"""Errors of a group that are put into words, in all."""
MAX_PART = 1024
"""Characters of one error of a group."""
MAX_DEPTH = 8
"""How deep groups inside groups are put into words."""


E = TypeVar("E", bound=BaseException)

_SLOTS: Any = vars(BaseException)
"""What every exception has, read and set without code of its class."""


class ChildTraceback(Exception):
    """The traceback of an error that came from another process: its cause here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def is_a(error: object, *kinds: type[E]) -> TypeGuard[E]:
    """`isinstance` without the object's own code: it may claim another class, or raise when asked for it."""
    return issubclass(type(error), kinds)


def stack_of(error: BaseException) -> TracebackType | None:
    """Where an error was raised."""
    stack: TracebackType | None = _SLOTS["__traceback__"].__get__(error)
    return stack


def cause_of(error: BaseException) -> BaseException | None:
    """The error that it was raised from."""
    cause: BaseException | None = _SLOTS["__cause__"].__get__(error)
    return cause


def set_cause(error: BaseException, cause: BaseException) -> None:
    """The same as `raise error from cause` does."""
    _SLOTS["__cause__"].__set__(error, cause)


def has_origin(error: BaseException) -> bool:
    """Whether it came from another error, or while another was handled."""
    return cause_of(error) is not None or _SLOTS["__context__"].__get__(error) is not None


def clean(text: object, most: int) -> str:
    """The text with visible escapes for what cannot be kept, cut with a word on its length."""
    exact = text if type(text) is str else text_of(text)
    whole = len(exact)
    if whole > most:
        exact = exact[:most]
    escaped = escape(exact)
    if whole <= most and len(escaped) <= most:
        return escaped
    mark = f"… ({whole:,} characters)"
    return escaped[: most - len(mark)] + mark


def show(value: object, most: int = MAX_SHOWN) -> str:
    """A value as an error quotes it; one that cannot describe itself is named by its type."""
    try:
        text = repr(value)
    except BaseException as problem:  # also one that wants to leave: only its text was asked for
        text = f"<{_type_name(value)}, whose repr() raised {_type_name(problem)}>"
    return escape(text if len(text) <= most else text[: most - 3] + "...")


def describe(error: BaseException) -> str:
    """An error as `job.error` shows it: type, text and notes, and below a group its parts."""
    lines: list[str] = []
    try:
        _describe(error, 0, lines)
    except BaseException as problem:  # whatever its own code raises: it must not reach the worker
        lines.append(f"{_type_name(error)} (which cannot be described: {_type_name(problem)})")
    return clean("\n".join(lines), MAX_ERROR)


def trace(error: BaseException) -> str:
    """The traceback of an error as logs show it; the middle of a very long one is left out."""
    stack, cause = stack_of(error), cause_of(error)
    try:
        if is_a(cause, ChildTraceback):
            return cause.text
        # The first frame is the worker's own and says nothing.
        inner = None if stack is None else stack.tb_next
        text = "".join(traceback.format_exception(type(error), error, inner))
    except BaseException:
        text = describe(error)
    return escape(_without_middle(text.rstrip("\n"), MAX_TRACE))


def last_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """The end of a log that fits its bounds."""
    kept: list[str] = []
    room = MAX_LOG_BYTES
    for line in reversed(list(lines)[-MAX_LOG_LINES:]):
        room -= len(line.encode())
        if room < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))


def escape(text: str) -> str:
    """Visible escapes for NUL and lone surrogates."""
    if "\x00" in text:
        text = text.replace("\x00", "\\x00")
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def _without_middle(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    mark = f"\n… ({len(text):,} characters)\n"
    head = most // 4
    return text[:head] + mark + text[len(text) - (most - head - len(mark)) :]


def text_of(value: object) -> str:
    """What `str()` gives, as plain text, where it gives anything."""
    try:
        return str.__str__(str(value))
    except BaseException as problem:  # also one that wants to leave: only its text was asked for
        return f"<{_type_name(value)}, whose str() raised {_type_name(problem)}>"


def _type_name(value: object) -> str:
    try:
        return f"{type(value).__qualname__}"
    except BaseException:
        return "object"


def _describe(error: BaseException, depth: int, lines: list[str]) -> None:
    if len(lines) > MAX_PARTS:
        return
    words = [_in_words(error), *_notes_of(error)]
    # A part leaves room for the others.
    lines += ["  " * depth + clean(each, MAX_PART) for each in words] if depth else words
    if is_a(error, BaseExceptionGroup) and depth < MAX_DEPTH:
        for part in error.exceptions[:MAX_PARTS]:
            _describe(part, depth + 1, lines)


def _notes_of(error: BaseException) -> list[str]:
    try:
        notes = getattr(error, "__notes__", None)
        return [text_of(note) for note in notes[:MAX_PARTS]] if isinstance(notes, list | tuple) else []
    except BaseException:  # its own code: what it says otherwise is shown all the same
        return []


def _in_words(error: BaseException) -> str:
    kind = type(error)
    module = kind.__module__
    name = kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
    text = text_of(error)
    return f"{name}: {text}" if text else name
