"""Histories on each store beside the memory store, and the memory store itself beside the plain model."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from ..histories.drive import drive_seed, reduce
from ..histories.kept import keep
from ..histories.stores import OPENERS
from .rounds import Drive

ROOT = Path(__file__).parents[2]
EXAMPLES = 30
"""Histories of the model that one seed stands for: Hypothesis draws them, and cuts down what differs itself."""


def drive_history(store: str, seed: int) -> str | None:
    """One history; what differs is cut down and kept."""
    failure = drive_seed(store, seed)
    if failure is None:
        return None
    smallest = reduce(failure)
    keep(smallest, seed)
    return str(smallest)


def drive_model(seed: int) -> str | None:
    """Some histories of the memory store beside the model."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
    command += ["tests/stores/test_model.py", "-k", "decide_the_same and memory", "--timeout=0"]
    environment = {**os.environ, "PACELINE_MODEL_EXAMPLES": str(EXAMPLES)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.stdout[-8000:] if done.returncode else None


DRIVES: dict[str, Drive] = {store: partial(drive_history, store) for store in OPENERS}
DRIVES["model"] = drive_model
