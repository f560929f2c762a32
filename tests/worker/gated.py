"""Handlers for processes of their own, which find them by name; each line of the file says when one began."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def begin_in_process(job: Any) -> None:
    with Path(job.data["file"]).open("a") as file:
        file.write(f"{time.time_ns() // 1000}\n")
