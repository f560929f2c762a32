"""The garbage collector, the same for all: what set-up left is out of its sight, then it works as usual."""

from __future__ import annotations

import gc


def settle() -> None:
    gc.collect()
    gc.freeze()
