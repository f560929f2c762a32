"""The picture: how many requests the service saw in each window against its quota, before and after."""

from __future__ import annotations

from html import escape

from paceline.cli.demo.compare import refusals
from paceline.cli.demo.runs import Result

WIDTH, HEIGHT = 760, 230
LEFT, TOP, RIGHT, BOTTOM = 56, 46, 16, 34
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600; font-size: 15px }
.small { font-size: 11px; fill: #57606a } .axis { stroke: #8c959f } .quota { stroke: #0969da; stroke-dasharray: 6 4 }
.good { fill: #2da44e } .bad { fill: #cf222e } .sent { fill: none; stroke: #57606a; stroke-width: 1.5 }
.back { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  .back { fill: #0d1117 } text { fill: #e6edf3 } .small { fill: #9198a1 } .sent { stroke: #9198a1 }
}
"""


def picture(most: int, per: float, storm: Result, paced: Result) -> str:
    """An SVG with the two runs one above the other, on the same axes."""
    seconds = max(_length(storm), _length(paced), per) * 1.02
    highest = max(_highest(storm, per), _highest(paced, per), most) * 1.1
    edge = WIDTH - RIGHT
    legend = (
        f'<rect class="good" x="{edge - 190}" y="14" width="10" height="10"/>'
        f'<text class="small" x="{edge - 176}" y="23">accepted</text>'
        f'<rect class="bad" x="{edge - 100}" y="14" width="10" height="10"/>'
        f'<text class="small" x="{edge - 86}" y="23">refused with 429</text>\n'
    )
    panels = [
        legend,
        _panel(0, f"Without limits: {_said(storm)}", storm, most, per, seconds, highest),
        _panel(HEIGHT, f"With limits: {_said(paced)}", paced, most, per, seconds, highest),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * HEIGHT}" width="{WIDTH}" '
        f'height="{2 * HEIGHT}" role="img" aria-label="Requests in each window, without and with limits">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="back" width="{WIDTH}" height="{2 * HEIGHT}"/>\n{"".join(panels)}</svg>\n'
    )


def _said(run: Result) -> str:
    counts = run.progress.counts
    return (
        f"{refusals(run)} x 429, {counts['completed']} delivered, {counts['failed']} lost, {run.progress.seconds:.1f} s"
    )


def _panel(top: int, title: str, run: Result, most: int, per: float, seconds: float, highest: float) -> str:
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    floor = top + TOP + high

    def x(at: float) -> float:
        return LEFT + wide * at / seconds

    def y(number: float) -> float:
        return floor - high * number / highest

    parts = [f'<text class="title" x="{LEFT}" y="{top + 24}">{escape(title)}</text>\n']
    parts.append(f'<text class="small" x="{LEFT}" y="{top + 39}">requests in the last {per:g} seconds</text>\n')
    step = per / 50
    for slot in range(int(seconds / step)):
        good, bad = _in_window(run, slot * step, per)
        for name, number, base in (("good", good, 0), ("bad", bad, good)):
            if number:
                parts.append(
                    f'<rect class="{name}" x="{x(slot * step):.1f}" y="{y(base + number):.1f}" '
                    f'width="{wide * step / seconds + 0.2:.2f}" height="{high * number / highest:.1f}"/>\n'
                )
    parts.append(f'<line class="quota" x1="{LEFT}" x2="{LEFT + wide}" y1="{y(most):.1f}" y2="{y(most):.1f}"/>\n')
    parts.append(f'<text class="small" x="{LEFT + wide}" y="{y(most) - 4:.1f}" text-anchor="end">quota {most}</text>\n')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{LEFT + wide}" y1="{floor}" y2="{floor}"/>\n')
    for number in sorted({0, most, int(highest / 1.1)}):
        parts.append(f'<text class="small" x="{LEFT - 6}" y="{y(number) + 4:.1f}" text-anchor="end">{number}</text>\n')
    for second in range(0, int(seconds) + 1, max(1, round(seconds / 8))):
        parts.append(
            f'<text class="small" x="{x(second):.1f}" y="{floor + 16}" text-anchor="middle">{second} s</text>\n'
        )
    return "".join(parts)


def _in_window(run: Result, at: float, per: float) -> tuple[int, int]:
    """Accepted and refused arrivals in the window that ends here."""
    began = run.arrivals[0].at if run.arrivals else 0.0
    inside = [arrival.status for arrival in run.arrivals if at - per < arrival.at - began <= at]
    return inside.count(200), inside.count(429)


def _length(run: Result) -> float:
    return run.progress.seconds


def _highest(run: Result, per: float) -> int:
    step = per / 50
    return max((sum(_in_window(run, slot * step, per)) for slot in range(int(_length(run) / step) + 1)), default=0)
