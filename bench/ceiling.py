"""What bounds each store: how far from the barest code we are, and whose processor is busy meanwhile."""

from __future__ import annotations

from bench.report import Table, middle, short
from bench.systems import STORES
from bench.targets import Measured

COLUMNS = {"drain": "drain", "single": "one by one", "together": "from 50 tasks", "bulk": "in bulk"}


def shares(measured: Measured) -> Table:
    """Each figure of `speed` as a share of the same figure of `ceilings`."""
    rows = []
    for store in STORES:
        bare = measured.get("ceilings", {}).get(f"{store} bare", [])
        ours = measured.get("speed", {}).get(f"{store} ours:plain", [])
        for column, words in COLUMNS.items():
            most, found = middle(bare, column), middle(ours, column)
            if most and found:
                rows.append([f"{store}, {words}", short(most), short(found), f"{found / most:.0%}"])
    return Table(["jobs/s", "bare", "ours, no limits", "share"], rows)


def busy(measured: Measured) -> Table:
    """During a drain: processor time of the worker and of the server, as a share of the time that passed."""
    rows = []
    for store in STORES:
        for shape in ("plain", "limit", "tenants"):
            runs = measured.get("speed", {}).get(f"{store} ours:{shape}", [])
            speed = middle(runs, "drain")
            if speed:
                worker, server = ((middle(runs, column) or 0) * speed / 1e6 for column in ("cpu_us", "server_us"))
                rows.append([f"{store}: {runs[0]['label']}", f"{worker:.0%}", f"{server:.0%}" if server else "–"])
    return Table(["busy during a drain, of one processor", "worker", "server"], rows)
