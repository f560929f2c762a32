"""New random histories of every kind, side by side, for as long as asked: `make soak SECONDS=3600`.

`histories` drives stores beside the memory store and keeps what differs, cut down, in `tests/histories/kept.jsonl`.
`outsider` drives programs over the public interface and keeps what is wrong in `tests/outsider/kept.jsonl`. Both files
are replayed by `make test`. Each kind is one process that drives one seed at a time.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
from pathlib import Path

from . import histories, outsider
from .rounds import rounds

ROOT = Path(__file__).parents[2]
KINDS = {"histories": histories.DRIVES, "outsider": outsider.DRIVES}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--most", type=int, default=5, help="leave a store after so many wrong seeds")
    parser.add_argument("--kind", choices=KINDS, help="this one only, in this process")
    asked = parser.parse_args()
    if asked.kind:
        logging.disable()
        return min(rounds(asked.kind, KINDS[asked.kind], asked.seconds, asked.most), 1)
    command = [sys.executable, "-m", "tests.soak", "--seconds", str(asked.seconds), "--most", str(asked.most)]
    running = [subprocess.Popen([*command, "--kind", kind], cwd=ROOT) for kind in KINDS]
    codes = [process.wait() for process in running]
    return int(any(codes))


if __name__ == "__main__":
    raise SystemExit(main())
