"""The suites in memory and on Redis: which systems are measured, and what is said about the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import report

Results = dict[str, list[dict[str, Any]]]

GRANTS = {"granted": 100_000, "sliding": 20_000, "refused": 200_000}
SPEED = 1.3
LIMITER = 2.0
FLAT = 2.0
REDIS = 4.0
REDIS_PEERS = ("dramatiq-8", "dramatiq-32", "taskiq-10", "taskiq-100", "saq-10", "saq-100", "celery-1", "celery-10")


@dataclass(frozen=True)
class Case:
    """One system in one suite: what `child.py` is called with."""

    suite: str
    system: str
    n: int


# drain


def drain_cases(jobs: int) -> list[Case]:
    """Ours and every setting of the peer in turn, so that all meet the same moments of the machine."""
    from adapters.pgqueuer_memory import BATCHES

    systems = ["ours-0", "ours-1", "ours-1000", *(f"pgqueuer-{batch}" for batch in BATCHES)]
    return [Case("drain", system, jobs) for system in systems]


def drain_report(results: Results) -> str:
    rows = [
        [
            runs[0]["name"],
            f"{median(rates(runs)):,.0f}",
            f"{report.spread(rates(runs)):.0%}",
            f"{median(rates(runs, 'cpu')):,.0f}",
            f"{median(run['cpu'] / run['n'] for run in runs) * 1e6:.1f}",
        ]
        for runs in results.values()
    ]
    lines = [report.table(["drain of no-op jobs", "jobs/s", "spread", "jobs/cpu-s", "cpu us/job"], rows), ""]
    peers = [runs for system, runs in results.items() if system.startswith("pgqueuer")]
    best = max(peers, key=lambda runs: median(rates(runs)))
    for system, runs in results.items():
        if system.startswith("ours"):
            what = f"{runs[0]['name']} / {best[0]['name']}"
            lines.append(report.verdict(what, rates(runs), rates(best), SPEED))
            lines.append(report.verdict("  the same by processor time", rates(runs, "cpu"), rates(best, "cpu"), SPEED))
    return "\n".join(lines)


# limiter


def limiter_cases(scale: float) -> list[Case]:
    return [
        Case("limiter", f"{system}-{pattern}", max(1, round(n * scale / 1000)) * 1000)
        for pattern, n in GRANTS.items()
        for system in ("ours", "limits")
    ]


def limiter_report(results: Results) -> str:
    rows = [
        [
            f"{system.split('-')[1]}: {runs[0]['name']}",
            f"{median(rates(runs)):,.0f}",
            f"{report.spread(rates(runs)):.0%}",
            f"{median(run['cpu'] / run['n'] for run in runs) * 1e6:.2f}",
        ]
        for system, runs in results.items()
    ]
    lines = [report.table(["limiter, at most 1,000", "calls/s", "spread", "cpu us/call"], rows), ""]
    for pattern in GRANTS:
        ours, theirs = results[f"ours-{pattern}"], results[f"limits-{pattern}"]
        lines.append(report.verdict(f"{pattern}: ours / limits", rates(ours), rates(theirs), LIMITER))
        lines.append(report.verdict("  the same by processor time", rates(ours, "cpu"), rates(theirs, "cpu"), LIMITER))
    return "\n".join(lines)


def rates(runs: list[dict[str, Any]], by: str = "seconds") -> list[float]:
    return [run["n"] / run[by] for run in runs]


# redis


def redis_cases(jobs: int) -> list[Case]:
    """Ours and every setting of every peer in turn, each on a fresh server; slow peers get fewer jobs."""
    ours = [Case("redis", system, jobs) for system in ("ours-off-100", "ours-on-100")]
    return ours + [Case("redis", system, max(jobs // 5, 500)) for system in REDIS_PEERS]


def redis_report(results: Results) -> str:
    rows = [
        [
            runs[0]["name"],
            f"{median(rates(runs)):,.0f}",
            f"{report.spread(rates(runs)):.0%}",
            f"{median(run['adds'] for run in runs):,.0f}",
            f"{median(run.get('bulk', 0) for run in runs):,.0f}",
        ]
        for runs in results.values()
        if runs
    ]
    lines = [report.table(["Redis, no-op jobs", "drain jobs/s", "spread", "single adds/s", "bulk adds/s"], rows), ""]
    peers = [runs for system, runs in results.items() if not system.startswith("ours") and runs]
    off, on = results["ours-off-100"], results["ours-on-100"]
    fastest = max(peers, key=lambda runs: median(rates(runs)))
    adder = max(peers, key=lambda runs: median(run["adds"] for run in runs))
    lines.append(report.verdict(f"drain: ours / {fastest[0]['name']}", rates(off), rates(fastest), REDIS))
    ours_adds, peer_adds = [run["adds"] for run in off], [run["adds"] for run in adder]
    lines.append(report.verdict(f"single adds: ours / {adder[0]['name']}", ours_adds, peer_adds, 1.0))
    lines.append(report.verdict("drain: limits on / off", rates(on), rates(off), 0.8))
    return "\n".join(lines)


# flat


def flat_cases(claims: int, large: str) -> list[Case]:
    return [Case("flat", f"{size}-{state}", claims) for state in ("blocked", "ready") for size in ("small", large)]


def flat_report(results: Results) -> str:
    rows = [
        [
            f"{runs[0]['name']}, {slots} slot{'s' if slots != '1' else ''}",
            *(f"{median(_times(runs, slots, column)):.1f}" for column in ("p50", "p99", "finish_p50")),
            f"{report.spread(_times(runs, slots, 'p50')):.0%}",
        ]
        for slots in ("1", "10")
        for runs in results.values()
    ]
    lines = [report.table(["one claim (cpu us)", "p50", "p99", "its finish", "spread of p50"], rows), ""]
    for state in ("blocked", "ready"):
        small, large = (runs for system, runs in results.items() if system.endswith(state))
        for slots in ("1", "10"):
            for column in ("p50", "p99"):
                what = f"{state}, {slots} slot{'s' if slots != '1' else ''}, {column}, many / few"
                ours, base = _times(large, slots, column), _times(small, slots, column)
                lines.append(report.verdict(what, ours, base, FLAT, at_most=True))
    return "\n".join(lines)


def _times(runs: list[dict[str, Any]], slots: str, column: str) -> list[float]:
    return [run["slots"][slots][column] for run in runs]
