"""Random programs over the public interface, on each store."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

from ..outsider.driver import run_history
from ..outsider.kept import SECONDS, keep
from ..outsider.oracle import summary
from ..outsider.places import STORES, place
from .rounds import Drive


def drive_programs(store: str, seed: int) -> str | None:
    """One history of programs; one that goes wrong is kept, with the notes that its programs wrote."""
    folder = Path(tempfile.mkdtemp(prefix=f"outsider-{store}-{seed}-"))
    try:
        wrong = run_history(*place(store, folder), seed, SECONDS, folder)
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error}"]
    if not wrong:
        shutil.rmtree(folder)
        return None
    keep(store, seed, wrong[0])
    return f"{summary(wrong)}\nthe notes of its programs are in {folder}"


DRIVES: dict[str, Drive] = {store: partial(drive_programs, store) for store in STORES}
