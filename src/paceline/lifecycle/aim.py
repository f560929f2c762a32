"""When to send a claim so that the store decides it at the instant at which a limit opens, and hardly later.

The way to the store, its locks and its work before the decision take their time, and the store's clock as this process
knows it is behind by the way back: a worker that sends at the instant starts that much late, at every start.
"""

from __future__ import annotations

from paceline.clock import Micros

LONGEST: Micros = 10_000
"""Sent at most so much ahead: a store that is slower than this is not made faster by asking early."""
LATE: Micros = 300
"""What is aimed at: a little late costs less than a refusal, after which the store must be asked again."""


class Aim:
    """Learns from the claims of one worker how long the store takes to decide one."""

    def __init__(self) -> None:
        self._takes: Micros = 0
        self._aimed_at: Micros | None = None
        self._refused: Micros | None = None

    def before(self, instant: Micros) -> Micros:
        """When to send the claim for an instant that the store named; ahead of it at most once."""
        self._aimed_at = instant
        return instant if instant == self._refused else instant - max(self._takes - LATE, 0)

    def forget(self) -> None:
        """Something else came first: the next claim is for no instant."""
        self._aimed_at = None

    def learn(self, sent_at: Micros, decided_at: Micros, *, started: bool) -> None:
        """A claim was decided; both instants are on the store's clock as this process knows it."""
        instant, self._aimed_at = self._aimed_at, None
        takes = decided_at - sent_at
        if instant is None:
            return
        if decided_at < instant:
            self._refused = instant
            self._takes = max(min(self._takes, takes), 0)
        elif started:
            # Who started nothing came behind others. In small steps: a single slow claim says little about the next.
            step = min((takes - self._takes) // 4, LATE)
            self._takes = min(max(self._takes + step, 0), LONGEST)
