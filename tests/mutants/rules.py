"""All rules that bugs are planted against."""

from __future__ import annotations

from . import (
    about_costs,
    about_counts,
    about_files,
    about_gate,
    about_limits,
    about_runs,
    about_turns,
    about_upgrades,
    about_wakeups,
)
from .rule import Rule

RULES: list[Rule] = [
    *about_turns.RULES,
    *about_limits.RULES,
    *about_costs.RULES,
    *about_runs.RULES,
    *about_gate.RULES,
    *about_wakeups.RULES,
    *about_files.RULES,
    *about_upgrades.RULES,
    *about_counts.RULES,
]
