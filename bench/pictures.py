"""The pictures of the docs, drawn from the results."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from statistics import median
from typing import Any, NamedTuple

from bench.report import laps, middle, short
from bench.svg import COLOURS, INK, LINE, NAMES, OURS, PALE, PEER, Picture
from bench.systems import STORES

Results = dict[str, list[dict[str, Any]]]
WIDTH = 760
LABELS, NUMBERS = 330, 90
"""What the names to the left and the figures to the right take."""
ROW = 22


class Bar(NamedTuple):
    label: str
    value: float
    ours: bool


def pictures(measured: dict[str, Results]) -> dict[str, str]:
    """By file name; only those whose suite was measured."""
    found = {}
    if "speed" in measured:
        found["drain.svg"] = _drain(measured["speed"])
    if "binding" in measured:
        found["exact.svg"] = _exact(measured["binding"])
    if "flat" in measured:
        found["flat.svg"] = _flat(measured["flat"])
    if "latency" in measured:
        found["latency.svg"] = _latency(measured["latency"])
    return found


def _drain(results: Results) -> str:
    """Of each peer its fastest setting; of ours without limits, and with."""
    panels = {store: bars for store in STORES if (bars := _drained(results, store))}
    height = 60 + sum(40 + ROW * len(bars) for bars in panels.values())
    picture = Picture(WIDTH, height, "Jobs a second that one worker runs")
    y = 62.0
    for store, bars in panels.items():
        picture.text(24, y, NAMES[store], size=13, weight="600", colour=PALE)
        y = _bars(picture, y + 10, bars, max(bar.value for bar in bars)) + 30
    return picture.svg()


def _drained(results: Results, store: str) -> list[Bar]:
    best: dict[str, Bar] = {}
    for key, runs in results.items():
        place, _, spec = key.partition(" ")
        system, _, setting = spec.partition(":")
        speed = middle(runs, "drain")
        if place != store or speed is None or (system == "ours" and setting not in ("plain", "limit", "tenants")):
            continue
        name = spec if system == "ours" else system
        if name not in best or speed > best[name].value:
            best[name] = Bar(runs[0]["label"].replace("ours", "Paceline"), speed, system == "ours")
    ours = [bar for bar in best.values() if bar.ours]
    return ours + sorted((bar for bar in best.values() if not bar.ours), key=lambda bar: -bar.value)


def _exact(results: Results) -> str:
    bars = [
        Bar(
            f"{NAMES[key.split()[0]]}: {runs[0]['label']}".replace("ours", "Paceline"),
            max(run["worst"] for run in runs),
            "ours" in key,
        )
        for key, runs in results.items()
        if "guard" not in key
    ]
    picture = Picture(WIDTH, 90 + ROW * len(bars), "A limit of 100 a second: starts in the worst second")
    most = max(bar.value for bar in bars)
    bottom = _bars(picture, 72, bars, most)
    x = LABELS + (WIDTH - LABELS - NUMBERS) * 100 / most
    picture.line([(x, 64), (x, bottom + 2)], LINE, dashes="4 3")
    picture.text(x, 58, "the limit", size=11, anchor="middle", colour=LINE)
    return picture.svg()


def _latency(results: Results) -> str:
    """The medians of all stores, on one scale."""
    bars = [
        Bar(
            f"{NAMES[key.split()[0]]}: {runs[0]['label']}".replace("ours", "Paceline"),
            middle(runs, "p50") or 0,
            "ours" in key,
        )
        for key, runs in results.items()
        if "full" not in key
    ]
    picture = Picture(WIDTH, 80 + ROW * len(bars), "Milliseconds from an add to the start, median, idle queue")
    _bars(picture, 56, bars, max(bar.value for bar in bars))
    return picture.svg()


def _bars(picture: Picture, top: float, bars: Sequence[Bar], most: float) -> float:
    room = WIDTH - LABELS - NUMBERS
    for place, bar in enumerate(bars):
        y = top + ROW * place
        colour = OURS if bar.ours else PEER
        picture.text(LABELS - 10, y + 14, bar.label, anchor="end", weight="600" if bar.ours else "400")
        picture.bar(LABELS, y + 2, room * bar.value / most, ROW - 6, colour)
        picture.text(LABELS + room * bar.value / most + 8, y + 14, short(bar.value), colour=INK)
    return top + ROW * len(bars)


def _flat(results: Results) -> str:
    """Ready and blocked side by side: a claim at each size beside the same claim at the smallest."""
    picture = Picture(WIDTH, 340, "One claim, beside the same claim with 1,000 jobs in 10 groups")
    for place, (state, words) in enumerate((("ready", "all groups ready"), ("blocked", "all groups but one blocked"))):
        _curves(picture, results, state, words, left=60 + place * 360, top=80)
    for place, store in enumerate(STORES):
        picture.dot(180 + place * 120, 318, COLOURS[store])
        picture.text(190 + place * 120, 322, NAMES[store])
    return picture.svg()


def _curves(picture: Picture, results: Results, state: str, words: str, left: float, top: float) -> None:
    width, height, most = 290.0, 180.0, 3.0

    def y(ratio: float) -> float:
        return top + height - height * min(ratio, most) / most

    picture.text(left + width / 2, top - 12, words, anchor="middle", colour=PALE, weight="600")
    for ratio in (0, 1, 2, 3):
        colour, dashes = (LINE, "4 3") if ratio == 2 else ("#e2e8f0", "")
        picture.line([(left, y(ratio)), (left + width, y(ratio))], colour, dashes=dashes)
        picture.text(left - 8, y(ratio) + 4, f"{ratio} ×", size=11, anchor="end", colour=PALE)
    for store in STORES:
        runs = results.get(f"{store} depth") or results.get(f"{store} depth:quick") or []
        names = [name for name in (runs[0]["beds"] if runs else ()) if name.endswith(state)]
        if not names:
            continue
        sizes = [int(name.split()[0].replace(",", "")) for name in names]
        costs = [median(laps(runs, name, "1", "p50")) for name in names]
        scale = width / max(log10(sizes[-1] / sizes[0]), 1)
        points = [
            (left + scale * log10(size / sizes[0]), y(cost / costs[0])) for size, cost in zip(sizes, costs, strict=True)
        ]
        picture.line(points, COLOURS[store], width=2)
        for x, at in points:
            picture.dot(x, at, COLOURS[store])
        for (x, _), size in zip(points, sizes, strict=True):
            if store == STORES[0]:
                picture.text(x, top + height + 18, f"{size:,}", size=11, anchor="middle", colour=PALE)
    picture.text(left + width / 2, top + height + 36, "waiting jobs", size=11, anchor="middle", colour=PALE)
