"""SQL by name: each file in `sql/` holds statements that begin with `-- name: …`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


def text(name: str) -> str:
    """A whole file."""
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


@cache
def statements(name: str) -> dict[str, str]:
    """The statements of one file by their names."""
    parts = text(name).split("-- name: ")[1:]
    return {title.strip(): body.strip() for title, _, body in (part.partition("\n") for part in parts)}
