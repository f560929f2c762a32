"""What a handler raises to say what should become of its own job. Verdicts are not errors."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from paceline.checks import check_optional_name
from paceline.clock import Micros, from_datetime
from paceline.durations import Duration, parse_duration
from paceline.errors import ConfigError, require
from paceline.text import show, text_of


class Verdict(Exception):
    """Base of `RateLimited`, `Retry` and `Fail`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.__dict__, str(self))


class RateLimited(Verdict):
    """The service refused: its limit is held for everybody, the job goes back without using an attempt.

    `raise RateLimited(retry_after=30)`, or `raise RateLimited.from_response(429, response.headers)`.
    """

    def __init__(self, retry_after: Duration | None = None, *, limit: str | None = None) -> None:
        self.retry_after: Micros | None = None if retry_after is None else _wait(retry_after, option="retry_after")
        self.limit = check_optional_name(limit, option="limit")
        super().__init__("rate limited by the service" + (f", limit {limit!r}" if limit else ""))

    @classmethod
    def from_response(
        cls,
        status: int,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
        *,
        limit: str | None = None,
    ) -> RateLimited:
        """Read the time to wait from a response; headers that make no sense are ignored with a warning."""
        from paceline.feedback import parse

        require(isinstance(status, int), "status", status, "the status of a response, such as 429")
        try:
            signal = parse(status, headers, now=time.time())
        except (TypeError, ValueError) as error:
            expected = "a mapping of headers, or pairs of a name and a value"
            raise ConfigError(f"headers={show(headers)} is wrong: expected {expected}", option="headers") from error
        return cls(signal.retry_after, limit=limit)


class Retry(Verdict):
    """Ask for another attempt: after a while, at a time, or when the job's limits next have room."""

    def __init__(self, after: Duration | None = None, *, at: datetime | None = None, reason: str | None = None) -> None:
        if after is not None and at is not None:
            raise ConfigError(
                f"Retry(after={show(after)}, at={show(at)}) is wrong: give one of them", option="after", value=after
            )
        self.after: Micros | None = None if after is None else _wait(after, option="after")
        self.at: Micros | None = None if at is None else from_datetime(at, option="at")
        self.reason = None if reason is None else text_of(reason)
        super().__init__(self.reason or "retry asked by the handler")


class Fail(Verdict):
    """End the job for good, whatever attempts are left."""

    def __init__(self, reason: Any = "failed by the handler") -> None:
        self.reason = text_of(reason)
        super().__init__(self.reason)


def _wait(value: Duration, *, option: str) -> Micros:
    """A time to wait; one that is too short to count is none."""
    if isinstance(value, float) and 0 < value < 1e-6:
        return 0
    return parse_duration(value, option=option, zero=True)


def _again(kind: type[Verdict], attributes: dict[str, Any], text: str) -> Verdict:
    """Rebuild a verdict that came from another process."""
    verdict = kind.__new__(kind, text)
    verdict.__dict__.update(attributes)
    return verdict
