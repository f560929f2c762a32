"""How far from the barest code we are: each figure of `speed` as a share of the same figure of `ceilings`."""

from __future__ import annotations

from bench.report import Table, middle, short
from bench.systems import STORES
from bench.targets import Measured

COLUMNS = {"drain": "drain", "single": "one by one", "together": "from 50 tasks", "bulk": "in bulk"}


def shares(measured: Measured) -> Table:
    rows = []
    for store in STORES:
        bare = measured.get("ceilings", {}).get(f"{store} bare", [])
        ours = measured.get("speed", {}).get(f"{store} ours:plain", [])
        for column, words in COLUMNS.items():
            most, found = middle(bare, column), middle(ours, column)
            if most and found:
                rows.append([f"{store}, {words}", short(most), short(found), f"{found / most:.0%}"])
    return Table(["jobs/s", "bare", "ours, no limits", "share"], rows)
