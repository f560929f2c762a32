"""Tasks of a script that is run as `__main__`: their names and their own processes find them all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio
import os

from paceline import App, current_job

app = App("memory://")


@app.task(isolation="process")
def crunch(number: int) -> list[int]:
    current_job().log_sync("crunching")
    return [number * 2, os.getpid()]


async def main() -> None:
    job = await crunch.enqueue(21)
    async with app.worker():
        doubled, child = await job.result(timeout=60)
    await job.refresh()
    print(job.task, doubled, child != os.getpid(), job.logs)


if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_task_of_a_script_keeps_its_name_and_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "my_jobs.py"
    script.write_text(SCRIPT)

    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=90)

    assert done.stdout == "crunch 42 True ('crunching',)\n", done.stderr
