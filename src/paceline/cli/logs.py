"""How a worker's log looks: lines for people, or JSON for machines; both know which job a line is about."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import click
import msgspec

from paceline.cli.output import clean, glyph
from paceline.job import Job
from paceline.lifecycle.run import current_jobs
from paceline.text import escape

FIELDS = ("job_id", "task", "queue", "group", "attempt", "worker")
_COLOURS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


def configure_logs(level: str, as_json: bool) -> None:
    """Send everything to standard error, once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    handler.addFilter(which_job)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def which_job(record: logging.LogRecord) -> bool:
    """What a handler logs says which job it ran for."""
    if not hasattr(record, "job_id"):
        jobs = current_jobs()
        if len(jobs) == 1:
            _note(record, jobs[0])
    return True


def _note(record: logging.LogRecord, job: Job[Any]) -> None:
    row = job.record
    said = {"job_id": row.id, "task": row.task, "queue": row.queue, "group": row.group}
    record.__dict__.update(said, attempt=row.attempts_made, worker=row.worker)


class TextLines(logging.Formatter):
    """`12:01:02 → send_email [tenant-7] 0199… started`."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = clean(record.getMessage())
        event = getattr(record, "event", None)
        if event is not None:
            mark = _mark(event)
        elif record.name.startswith("paceline"):
            mark = "!" if record.levelno >= logging.WARNING else glyph("·", "-")
        else:
            mark, text = " ", f"{record.name}: {text}"
        if record.exc_info:
            text += "\n" + "\n".join(clean(line) for line in _traceback(self, record).splitlines())
        colour = _COLOURS.get(record.levelno)
        if colour is not None and sys.stderr.isatty():
            text = click.style(text, fg=colour)
        return f"{at} {mark} {text}"


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("event", *FIELDS, "seconds"):
            value = getattr(record, name, None)
            if value is not None:
                said[name] = value
        if record.exc_info:
            said["exception"] = _traceback(self, record)
        # Texts of handlers may hold what no stream can write.
        texts = {name: escape(value) if isinstance(value, str) else value for name, value in said.items()}
        return msgspec.json.encode(texts, enc_hook=str).decode()


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The text that a worker has made of it, or the usual one."""
    return record.exc_text or formatter.formatException(record.exc_info or (None, None, None))


def _mark(event: str) -> str:
    if event == "started":
        return glyph("→", ">")
    return glyph("✓", "+") if event == "completed" else glyph("✗", "x")
