"""One measurement in a process of its own: `python -m bench.child speed redis saq:10 10000` prints JSON.

With `--profile` it shows on standard error where the time of the event loop's thread went.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import sys
from collections.abc import Coroutine
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from bench.cases import Case
from bench.places import KINDS, Places
from bench.systems import STORES


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """On uvloop where there is one, for ours and for every peer."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite")
    parser.add_argument("store", choices=STORES)
    parser.add_argument("spec", help="system:setting, for example ours:limit or saq:10")
    parser.add_argument("n", type=int)
    parser.add_argument("processes", type=int, nargs="?", default=1)
    parser.add_argument("--url", help="an empty store that is there; without one a server is started")
    parser.add_argument("--server", type=int, default=0, help="the process of that server")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    case = Case(options.suite, options.store, options.spec, options.n, options.processes)
    suite = import_module(f"bench.suites.{options.suite}")
    with ExitStack() as stack:
        if options.url:
            place = KINDS[options.store](options.url, options.server)
        else:
            place = stack.enter_context(stack.enter_context(Places()).fresh(options.store))
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        found = run(_finish(suite.measure(place, case)))
        if options.profile:
            profile.disable()
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    print(json.dumps(found), flush=True)


async def _finish(work: Coroutine[Any, Any, Any]) -> Any:
    found = await work
    if "--url" in sys.argv:
        # Some peers leave threads and tasks that would never let the loop end; the server is not ours to stop.
        print(json.dumps(found), flush=True)
        os._exit(0)
    return found


if __name__ == "__main__":
    main()
