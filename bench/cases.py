"""One measurement, as it is named on the command line, in results and in tables."""

from __future__ import annotations

from typing import NamedTuple

from bench.systems import Peer


class Case(NamedTuple):
    """A system with a setting in a suite, on a store; `n` is the amount of work, whatever that is in the suite."""

    suite: str
    store: str
    spec: str
    n: int
    processes: int = 1

    @property
    def key(self) -> str:
        """Its name in the results."""
        return f"{self.store} {self.spec}" + (f" x{self.processes}" if self.processes > 1 else "")


class Size(NamedTuple):
    """How large a run is, and which peers cannot be measured here."""

    quick: bool = False
    absent: tuple[Peer, ...] = ()
