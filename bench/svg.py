"""The few shapes that our pictures are made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

OURS, PEER, LINE, INK, PALE = "#0f766e", "#94a3b8", "#dc2626", "#1e293b", "#64748b"
COLOURS = {"memory": "#7c3aed", "sqlite": "#0f766e", "postgres": "#2563eb", "redis": "#d97706"}
NAMES = {"memory": "memory", "sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}


class Picture:
    """A white card that shapes are put on; it reads the same on a dark page."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []
        self.text(24, 34, title, size=17, weight="600")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 12,
        anchor: str = "start",
        colour: str = INK,
        weight: str = "400",
    ) -> None:
        place = (
            f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}"'
        )
        self._parts.append(f"<text {place}>{escape(words)}</text>")

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height:.1f}"'
        self._parts.append(f'<rect {place} rx="2" fill="{colour}"/>')

    def line(self, points: Sequence[tuple[float, float]], colour: str, *, width: float = 1, dashes: str = "") -> None:
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')

    def svg(self) -> str:
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        font = "font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\""
        card = f'<rect width="{self.width}" height="{self.height}" rx="8" fill="#ffffff"/>'
        label = f"<title>{escape(self.title)}</title>"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font} role="img">'
        return "\n".join([head, label, card, *self._parts, "</svg>"]) + "\n"
