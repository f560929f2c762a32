"""Drive one history: `python -m tests.histories postgres 40` drives seed 40 and cuts down what differs."""

from __future__ import annotations

import argparse
import logging

from .drive import drive_seed, reduce
from .stores import OPENERS

if __name__ == "__main__":
    asked = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    asked.add_argument("store", choices=OPENERS)
    asked.add_argument("seed", type=int)
    asked = asked.parse_args()
    logging.disable()
    failure = drive_seed(asked.store, asked.seed)
    print("the same as in memory" if failure is None else reduce(failure))
    raise SystemExit(failure is not None)
