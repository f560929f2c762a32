"""The `paceline` command; one file per subcommand. What it can do is said without importing anything."""

from __future__ import annotations

import sys

from paceline import __version__

COMMANDS = {
    "demo": "Watch webhooks meet a quota: as fast as possible, then with limits.",
    "worker": "Run the jobs of an app.",
    "dev": "Run a worker that starts anew when a file changes.",
    "status": "Queues, limits and how full they are, workers.",
    "why": "Why a job waits, or what became of it.",
    "jobs": "List jobs.",
    "limits": "List limits, change them, hold them.",
    "enqueue": "Add a job, or many from a file.",
    "pause": "Start nothing of a queue, a task or a group.",
    "resume": "Take a pause back.",
    "retry": "Run finished jobs once more.",
    "cancel": "Cancel jobs.",
    "clean": "Remove jobs that ended.",
    "migrate": "Bring the schema of a PostgreSQL database to this version.",
    "doctor": "Versions, settings and their origin, the store's health.",
}


def main() -> None:
    """Run a command."""
    words = sys.argv[1:]
    if words in ([], ["-h"], ["--help"]):
        sys.stdout.write(overview())
    elif words == ["--version"]:
        sys.stdout.write(f"paceline, version {__version__}\n")
    elif unreadable := next((word for word in words if not _is_text(word)), None):
        sys.stderr.write(f"Error: the argument {unreadable!r} is no text in the encoding of this terminal\n")
        sys.exit(2)
    else:
        from paceline.cli.group import group

        group(prog_name="paceline")


def _is_text(word: str) -> bool:
    # Bytes that Python could not decode: no store could keep them either.
    return not any("\udc80" <= each <= "\udcff" for each in word)


def overview() -> str:
    """What `paceline --help` says."""
    lines = [
        "Usage: paceline COMMAND [OPTIONS]",
        "",
        "  A job queue that holds the pace: as many starts as your limits allow, and",
        "  never one more.",
        "",
        "Commands:",
        *(f"  {name:<8} {text}" for name, text in COMMANDS.items()),
        "",
        "  paceline COMMAND --help says more; paceline --version the version.",
        "",
        "  Every command finds your app by -a jobs:app, PACELINE_APP or",
        "  [tool.paceline] in pyproject.toml, or a store by --store URL or",
        "  PACELINE_STORE.",
    ]
    return "\n".join(lines) + "\n"
