"""What handlers do with nasty texts. A plain module: children import it by name."""

from __future__ import annotations

from typing import Any

from paceline import Fail, RateLimited, Retry

TEXTS = {
    "nul": "a\x00b",
    "surrogate": "no such file \udcff",
    "both": "\x00\ud800\x00",
    "huge": "x" * 1_200_000,  # more than a store takes as a result
    "huge and nasty": "\x00\udc80" * 500_000,
    "control": "\x1b[31m\r\n\x07\u202e",
    "empty": "",
}


class Mute(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Leaves(Exception):
    """Whoever asks for its text is told to go."""

    def __str__(self) -> str:
        raise SystemExit(1)


class Unfinished(RateLimited):
    """A verdict that was never set up."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


class NoNotes(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError("no notes")


class Closed(Exception):
    """No attribute of it can be read, not even its class."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Exits(Exception):
    """Whoever reads or sets an attribute is told to go."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise SystemExit(name)


class ClosedVerdict(RateLimited):
    """A verdict of which no attribute can be read."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)


class Hidden(Exception):
    """What every exception has cannot be read."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    @property
    def __traceback__(self) -> Any:
        raise RuntimeError("no traceback")

    @property
    def __cause__(self) -> Any:
        raise RuntimeError("no cause")

    @property
    def __context__(self) -> Any:
        raise RuntimeError("no context")


class Disguised(Exception):
    """It claims to be a verdict."""

    @property
    def __class__(self) -> Any:
        return RateLimited


class Uncountable(list[Any]):
    """A list that does not know its length, such as rows whose connection is closed."""

    def __len__(self) -> int:
        raise RuntimeError("no length")


def _error(text: str) -> Exception:
    return ValueError(text)


def _silly_module(text: str) -> Exception:
    return type("Silly", (Exception,), {"__module__": text})("what")


def _silly_number(text: str) -> Exception:
    return type("Silly", (Exception,), {"__module__": 5})(text)


def _silly_name(text: str) -> Exception:
    silly = type("Silly", (Exception,), {})
    silly.__qualname__ = text
    return silly("what")


def _notes(text: str) -> Exception:
    error = ValueError("what")
    error.__notes__ = [text, Mute(), 5]  # type: ignore[list-item]
    return error


def _strange_notes(text: str) -> Exception:
    error = ValueError(text)
    error.__notes__ = Mute()  # type: ignore[assignment]
    return error


def _group(text: str) -> Exception:
    return ExceptionGroup(text, [ValueError(text), ExceptionGroup("inner", [KeyError(text), Mute()])])


def _deep_group(text: str) -> Exception:
    error: Exception = ValueError(text)
    for _ in range(3_000):
        error = ExceptionGroup("deeper", [error])
    return error


def _cycle(text: str) -> Exception:
    first, second = ValueError(text), KeyError(text)
    first.__cause__, second.__cause__ = second, first
    return first


def _strange_retry(text: str) -> Exception:
    return Retry(after=0, reason=text)


ERRORS: dict[str, Any] = {
    "error": _error,
    "system exit": SystemExit,
    "generator exit": GeneratorExit,
    "base": lambda text: type("Base", (BaseException,), {})(text),
    "many arguments": lambda text: OSError(5, text, text),
    "bytes": lambda text: UnicodeDecodeError("utf-8", b"\xff\x00", 0, 1, text),
    "syntax": lambda text: SyntaxError(text, (text, "x", "y", text)),
    "mute": lambda text: Mute(text),
    "leaves": lambda text: Leaves(text),
    "silly module": _silly_module,
    "silly number": _silly_number,
    "silly name": _silly_name,
    "notes": _notes,
    "no notes": NoNotes,
    "strange notes": _strange_notes,
    "group": _group,
    "deep group": _deep_group,
    "cycle": _cycle,
    "fail": Fail,
    "retry": _strange_retry,
    "unknown limit": lambda text: RateLimited(limit="unknown") if text else RateLimited(limit="none"),
    "unfinished verdict": Unfinished,
    "closed": Closed,
    "exits": Exits,
    "closed verdict": lambda text: ClosedVerdict.__new__(ClosedVerdict, text),
    "hidden": Hidden,
    "disguised": Disguised,
    "group of closed ones": lambda text: ExceptionGroup(text, [Closed(text), Hidden(text), ValueError(text)]),
}
"""What is raised, by name: functions of a text."""

RESULTS: dict[str, Any] = {
    "result": lambda text: text,
    "key of a result": lambda text: {text: 1},
    "part of a result": lambda text: [[text], {"a": {"b": text}}],
    "strange result": lambda text: Mute(text),
    "error as a result": lambda text: ValueError(text),
    "closed result": lambda text: Closed(text),
    "hidden result": lambda text: Hidden(text),
    "uncountable result": lambda text: Uncountable([text]),
}
"""What is returned."""

NOTES = ("message", "log")


async def misbehave(job: Any) -> Any:
    """Do what the job's data say."""
    path, name = job.data
    if path in NOTES:
        await (job.progress(50, TEXTS[name]) if path == "message" else job.log(TEXTS[name]))
        return None
    return _end(path, name)


def misbehave_plainly(job: Any) -> Any:
    """The same without a coroutine."""
    path, name = job.data
    if path in NOTES:
        job.progress_sync(50, TEXTS[name]) if path == "message" else job.log_sync(TEXTS[name])
        return None
    return _end(path, name)


async def misbehave_together(jobs: list[Any]) -> list[Any]:
    """The same for a batch: errors are returned, each for its own job."""
    ends: list[Any] = []
    for job in jobs:
        try:
            ends.append(await misbehave(job))
        except BaseException as error:
            ends.append(error)
    return ends


async def misbehave_as_one(jobs: list[Any]) -> Any:
    """A batch that ends as its first job says."""
    return await misbehave(jobs[0])


def misbehave_plainly_as_one(jobs: list[Any]) -> Any:
    """The same without a coroutine."""
    return misbehave_plainly(jobs[0])


def _end(path: str, name: str) -> Any:
    if path == "well":
        return "well"
    if path in ERRORS:
        raise ERRORS[path](TEXTS[name])
    return RESULTS[path](TEXTS[name])
