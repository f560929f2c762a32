"""The two runs side by side, in words and numbers."""

from __future__ import annotations

from paceline.cli.demo.runs import Result
from paceline.cli.output import table


def compare(jobs: int, most: int, per: float, storm: Result, paced: Result) -> list[str]:
    """A table, and what it means."""
    ideal = ideal_seconds(jobs, most, per)
    rows: list[list[object]] = [
        ["requests sent", *(_requests(run) for run in (storm, paced))],
        ["answered 429", *(refusals(run) for run in (storm, paced))],
        ["attempts burnt", *(refusals(run) if run is storm else 0 for run in (storm, paced))],
        ["delivered", *(f"{run.progress.counts['completed']} of {jobs}" for run in (storm, paced))],
        ["failed for good", *(run.progress.counts["failed"] for run in (storm, paced))],
        ["seconds", *(f"{run.progress.seconds:.1f}" for run in (storm, paced))],
        ["most in one window", *(f"{worst_window(run, per)} of {most}" for run in (storm, paced))],
        ["first of the tiny tenant", *(_first(run, "tiny") for run in (storm, paced))],
        ["worst served tenant", *(_worst(run) for run in (storm, paced))],
    ]
    lines = ["", *table(["", "without limits", "with limits"], rows, right=["without limits", "with limits"]), ""]
    if paced.progress.seconds and ideal:
        lines.append(
            f"{jobs} webhooks, {most} allowed in any {per:g} seconds: that takes at least {ideal:.1f} s. "
            f"With limits it took {paced.progress.seconds:.1f} s ({paced.progress.seconds / ideal:.2f} x), "
            f"{refusals(paced)} refusals; without, {refusals(storm)} refusals and "
            f"{storm.progress.counts['failed']} webhooks lost."
        )
    if refusals(paced):
        lines.append(
            "Refusals in spite of limits: handlers began on time, but this machine was so busy that requests came to "
            "the service at different speeds. A limit with a longer guard= allows for that way, too."
        )
    return lines


def ideal_seconds(jobs: int, most: int, per: float) -> float:
    """What the quota allows: the last webhook can arrive so late at the earliest."""
    return (jobs - 1) // most * per


def refusals(run: Result) -> int:
    """How often the service said 429."""
    return sum(arrival.status == 429 for arrival in run.arrivals)


def worst_window(run: Result, per: float) -> int:
    """The most arrivals in any window, whatever was answered."""
    times = [arrival.at for arrival in run.arrivals]
    first = worst = 0
    for last, at in enumerate(times):
        while times[first] <= at - per:
            first += 1
        worst = max(worst, last - first + 1)
    return worst


def _requests(run: Result) -> int:
    return len(run.arrivals)


def _first(run: Result, tenant: str) -> str:
    began = run.arrivals[0].at if run.arrivals else 0.0
    times = [arrival.at - began for arrival in run.arrivals if arrival.tenant == tenant and arrival.status == 200]
    return f"after {times[0]:.2f} s" if times else "never"


def _worst(run: Result) -> str:
    shares = {
        name: run.progress.delivered.get(name, 0) / wanted for name, wanted in run.progress.wanted.items() if wanted
    }
    name = min(shares, key=lambda each: shares[each])
    return f"{name}: {run.progress.delivered.get(name, 0)} of {run.progress.wanted[name]}"
