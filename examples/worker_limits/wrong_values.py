"""Wrong numbers are refused where they are written; the error names the option, the value and what is expected."""

from collections.abc import Callable

from paceline import Backoff, Concurrency, ConfigError, Delay, EvenlySpaced, GroupLimits, Rate

WRONG: dict[str, Callable[[], object]] = {
    "max is 0": lambda: Rate(0, per="1s"),
    "max is negative": lambda: Rate(-1, per="1s"),
    "max is a fraction": lambda: Rate(1.5, per="1s"),  # type: ignore[arg-type]
    "duration is 0": lambda: Rate(10, per=0),
    "duration is negative": lambda: Rate(10, per=-1000),
    "duration is no duration": lambda: Rate(10, per="5 parsecs"),
    "no slots": lambda: Concurrency(0),
    "group limiter": lambda: GroupLimits(limiter=Rate(0, per="1m")),
    "negative gap": lambda: Delay(-1),
    "even spacing of nothing": lambda: EvenlySpaced(0, per="1m"),
    "initial backoff": lambda: Backoff(initial=0),
    "multiplier": lambda: Backoff(multiplier=1),
    "maximum below initial": lambda: Backoff(initial="1s", maximum="1s"),
}


def main() -> dict[str, str]:
    said = {}
    for case, make in WRONG.items():
        try:
            made = make()
        except ConfigError as error:
            said[case] = str(error)
        else:
            raise AssertionError(f"{made!r} was accepted")
    return said


if __name__ == "__main__":
    for case, text in main().items():
        print(f"{case:<24} {text}")
