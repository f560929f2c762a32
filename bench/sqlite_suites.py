"""The suites on SQLite files: which systems are measured, and what is said about the numbers."""

from __future__ import annotations

from statistics import median
from typing import Any

import report
from suites import Case, Results, rates

DRAIN = 2.0
ADD = 1.0
BULK = 10.0
KEPT_SPEED = 0.7
"""A limit that does not bind costs at most 30 %."""
P50, P99 = 5.0, 25.0
"""Milliseconds."""
SHARE = 0.98
FLAT = 2.0

PEERS = ("litequeue", "huey-1")


# drain


def drain_cases(jobs: int) -> list[Case]:
    ours = [f"ours-normal-{shape}" for shape in ("off", "limit", "groups", "tenants", "kept")]
    ours += [f"ours-full-{shape}" for shape in ("off", "limit", "tenants")]
    cases = [Case("sqlite-drain", system, jobs) for system in (*ours, *_drained_peers())]
    return [*cases, Case("sqlite-drain", "huey-1-default", jobs // 4)]  # slow: a quarter tells as much


def _drained_peers() -> list[str]:
    from adapters.huey_sqlite import THREADS

    return ["litequeue", *(f"huey-{threads}" for threads in THREADS)]


def drain_report(results: Results) -> str:
    lines = [_speed_table("drain of no-op jobs on SQLite", "jobs", results), ""]
    peers = [results[peer] for peer in _drained_peers()]
    for system, runs in results.items():
        if system.startswith("ours"):
            lines += _beside(runs, peers, DRAIN if "normal" in system else None)
    for durability in ("normal", "full"):
        limited, free = (results[f"ours-{durability}-{shape}"] for shape in ("limit", "off"))
        lines += _beside(limited, [free], KEPT_SPEED if durability == "normal" else None)
    return "\n".join(lines)


# add


def add_cases(jobs: int) -> list[Case]:
    return [
        Case("sqlite-add", f"{system}:{way}", jobs * (4 if way == "bulk" else 1))
        for system, ways in {
            "ours-normal": ("together", "singly", "bulk"),
            "ours-full": ("together", "singly", "bulk"),
            **dict.fromkeys((*PEERS, "huey-1-default"), ("singly",)),
        }.items()
        for way in ways
    ]


WAYS = {"singly": "one after the other", "together": "from 50 tasks", "bulk": "1,000 at a time"}


def add_report(results: Results) -> str:
    named = {
        system: [
            run | {"name": f"{run['name'].removesuffix(', no limits')}, {WAYS[system.split(':')[1]]}"} for run in runs
        ]
        for system, runs in results.items()
    }
    lines = [_speed_table("adds on SQLite", "jobs", named), ""]
    peers = [named[f"{peer}:singly"] for peer in PEERS]
    for durability in ("normal", "full"):
        together, singly, bulk = (named[f"ours-{durability}:{way}"] for way in ("together", "singly", "bulk"))
        targets = (ADD, BULK) if durability == "normal" else (None, None)
        lines += _beside(together, peers, targets[0])
        lines += _beside(singly, peers, None)
        lines += _beside(bulk, [singly], targets[1])
        lines += _beside(bulk, [together], targets[1])
    return "\n".join(lines)


# latency


def latency_cases(samples: int) -> list[Case]:
    systems = ("ours-normal-off", "ours-full-off", *PEERS)
    return [Case("sqlite-latency", system, samples) for system in systems]


def latency_report(results: Results) -> str:
    rows = [
        [
            runs[0]["name"].removesuffix(", no limits"),
            *(f"{median(run[column] for run in runs):.2f}" for column in ("p50", "p99", "max")),
            f"{report.spread([run['p50'] for run in runs]):.0%}",
            f"{median(run['busy'] for run in runs):.1%}",
        ]
        for runs in results.values()
    ]
    head = ["add to start in another process (ms)", "p50", "p99", "max", "spread of p50", "worker's cpu"]
    lines = [report.table(head, rows), ""]
    for system, runs in results.items():
        if system.startswith("ours-normal"):
            for column, target in (("p50", P50), ("p99", P99)):
                found = median(run[column] for run in runs)
                lines.append(
                    f"{runs[0]['name'].removesuffix(', no limits')}, {column}: {found:.2f} ms; "
                    f"target at most {target:g} ms: {report.reached(found <= target)}"
                )
    return "\n".join(lines)


# use


def use_cases(jobs: int) -> list[Case]:
    systems = [f"{system}:{count}" for system in ("ours-normal", "ours-full", "huey-1") for count in (1, 4)]
    return [Case("sqlite-use", system, jobs) for system in systems]


def use_report(results: Results) -> str:
    rows = [
        [
            runs[0]["name"],
            _worst(runs, "worst_stamped"),
            _worst(runs, "worst_begun"),
            f"{median(run['share'] for run in runs):.1%}",
            *(f"{median(run[column] for run in runs):.1f}" for column in ("late_mean", "late_p99")),
            f"{median(run['cpu'] / run['n'] for run in runs) * 1e6:,.0f}",
        ]
        for runs in results.values()
    ]
    head = ["100 starts a second", "worst second", "by handlers", "used", "late ms", "p99", "cpu us/job"]
    lines = [report.table(head, rows), ""]
    for system, runs in results.items():
        if system.startswith("ours"):
            worst = max(run["worst_stamped"] for run in runs)
            share = median(run["share"] for run in runs)
            exact, full = report.reached(worst <= 100), report.reached(share >= SHARE)
            lines.append(f"{runs[0]['name']}: {worst} starts in the worst second of all; target at most 100: {exact}")
            lines.append(f"{runs[0]['name']}: {share:.1%} used; target {SHARE:.0%}: {full}")
    return "\n".join(lines)


def _worst(runs: list[dict[str, Any]], column: str) -> str:
    found = [run[column] for run in runs if run[column] is not None]
    return str(max(found)) if found else "-"


# flat


def flat_cases(claims: int, large: str) -> list[Case]:
    return [Case("sqlite-flat", large, claims)]


def flat_report(results: Results) -> str:
    (runs,) = results.values()
    beds = runs[0]["beds"]
    rows = [
        [
            f"{bed['name']}, {slots} slot{'s' if slots != '1' else ''}",
            *(f"{median(_laps(bed, slots, column)):,.0f}" for column in ("p50", "p99", "finish_p50", "wall_p50")),
            f"{report.spread(_laps(bed, slots, 'p50')):.0%}",
            f"{bed['first_ms']:.0f}",
        ]
        for slots in ("1", "10")
        for bed in beds.values()
    ]
    head = ["one claim on SQLite (cpu us)", "p50", "p99", "its finish", "wall p50", "spread of p50", "first, ms"]
    lines = [report.table(head, rows), ""]
    for state in ("blocked", "ready"):
        small, large = (bed for name, bed in beds.items() if name.endswith(state))
        for slots in ("1", "10"):
            for column, what in (("p50", "cpu p50"), ("p99", "cpu p99"), ("wall_p50", "wall p50")):
                what = f"{state}, {slots} slot{'s' if slots != '1' else ''}, {what}, many / few"
                many, few = _laps(large, slots, column), _laps(small, slots, column)
                lines.append(report.verdict(what, many, few, FLAT, at_most=True))
    return "\n".join(lines)


def _laps(bed: dict[str, Any], slots: str, column: str) -> list[float]:
    return [lap["slots"][slots][column] for lap in bed["rounds"]]


# words


def _speed_table(what: str, unit: str, results: Results) -> str:
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
    return report.table([what, f"{unit}/s", "spread", f"{unit}/cpu-s", f"cpu us/{unit.removesuffix('s')}"], rows)


def _beside(ours: list[dict[str, Any]], others: list[list[dict[str, Any]]], target: float | None) -> list[str]:
    """Ours beside the fastest of the others: by the wall, and by processor time, where it may be another one."""
    lines = []
    for by, words in (("seconds", ""), ("cpu", "  by processor time, ")):
        best = max(others, key=lambda runs: median(rates(runs, by)))
        what = f"{words}{ours[0]['name']} / {best[0]['name']}"
        lines.append(report.verdict(what, rates(ours, by), rates(best, by), target))
    return lines
