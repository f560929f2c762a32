"""The fixture `paceline_time` works with every plugin that runs async tests, as it is when Paceline is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import pytest
from paceline import App, Rate

MARK
async def test_a_limit(paceline_time):
    app = App(paceline_time.store)
    app.limit("two", Rate(2, per="1m"), tasks=["note"])

    @app.task()
    async def note(number: int) -> None: ...

    await note.enqueue_many(range(6))
    async with app.worker():
        await paceline_time.advance("59s")
        assert len(paceline_time.starts("note")) == 2
        await paceline_time.advance("1m")
        assert len(paceline_time.starts("note")) == 4

def test_plain(paceline_time):
    assert paceline_time.now().year == 2030
"""


@pytest.mark.parametrize(
    ("mark", "options"),
    [
        ("@pytest.mark.asyncio", ["-o", "asyncio_mode=strict"]),
        ("", ["-o", "asyncio_mode=auto"]),
        ("@pytest.mark.anyio", ["-p", "no:asyncio"]),
        ("@pytest.mark.anyio", ["-o", "asyncio_mode=strict"]),
    ],
    ids=["strict", "auto", "anyio", "anyio beside strict"],
)
def test_the_fixture_works(tmp_path: Path, mark: str, options: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(TEST.replace("MARK", mark))
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    )

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert "2 passed" in done.stdout, done.stdout + done.stderr
