"""Drive new seeds at one place after the other for as long as asked; what goes wrong stops nobody."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Drive = Callable[[int], str | None]
"""Drives one seed and gives what is wrong with it, if something is."""

TURN = 10.0
"""Seconds that one place has before it is the next one's turn."""
REPORT = 60.0
"""Seconds between two lines of progress."""
STUCK = 400.0
"""Seconds after which a seed that has not ended counts as wrong."""


@dataclass
class Place:
    """Where seeds are driven, and what came of it."""

    name: str
    drive: Drive
    seed: int
    driven: int = 0
    wrong: list[int] = field(default_factory=list)

    def next(self) -> str | None:
        """Drive the next seed; what is wrong with it."""
        seed = self.seed + self.driven
        self.driven += 1
        try:
            with _bounded():
                found = self.drive(seed)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found is not None:
            self.wrong.append(seed)
        return found

    def __str__(self) -> str:
        wrong = f"wrong: {self.wrong}" if self.wrong else "none wrong"
        return f"{self.name}: {self.driven} from seed {self.seed} on, {wrong}"


def rounds(kind: str, drives: dict[str, Drive], seconds: float, most: int) -> int:
    """Drive new seeds until the time is over; how many were wrong. A place is left after so many."""
    first = random.SystemRandom().randrange(1 << 40)
    places = [Place(f"{kind} {name}", drive, first) for name, drive in drives.items()]
    end, report_at = time.monotonic() + seconds, time.monotonic() + REPORT
    while time.monotonic() < end and (left := [place for place in places if len(place.wrong) < most]):
        for place in left:
            turn_ends = min(time.monotonic() + TURN, end)
            while time.monotonic() < turn_ends and len(place.wrong) < most:
                found = place.next()
                if found is not None:
                    print(f"{place.name}: seed {place.wrong[-1]} is wrong\n{found}", flush=True)
            if time.monotonic() > report_at:
                print("; ".join(map(str, places)), flush=True)
                report_at = time.monotonic() + REPORT
    print("\n".join(["", f"{kind}, at the end:", *map(str, places)]), flush=True)
    return sum(len(place.wrong) for place in places)


@contextmanager
def _bounded() -> Iterator[None]:
    def stuck(*_: object) -> None:
        raise TimeoutError(f"it did not end within {STUCK:.0f} s")

    before = signal.signal(signal.SIGALRM, stuck)
    signal.setitimer(signal.ITIMER_REAL, STUCK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
