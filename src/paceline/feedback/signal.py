"""The answer of `parse`: what one response says about the limits of the service that sent it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One thing a service counts, such as requests or tokens, and how much of it is left."""

    name: str
    limit: int | None
    remaining: float | int | None
    reset_at: float | None
    """Epoch seconds on the caller's clock: a skew that the response's `Date` shows is already taken out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Whether a response was refused for a limit, and how long the service asks to wait."""

    limited: bool
    retry_after: float | None
    """Seconds from now, at most the caller's maximum; None when the response names no time."""
    dimensions: tuple[Dimension, ...]
    reason: str | None
    """The service's own word for the refusal, else the names of what is used up, else what the status means."""
