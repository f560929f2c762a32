"""Every Python block of the README and the docs runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    (page.relative_to(ROOT), number, block)
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE), 1)
]


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=[f"{page}:{number}" for page, number, _ in BLOCKS])
def test_a_code_block_runs_as_it_stands(page: Path, number: int, block: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )

    assert done.returncode == 0, f"{page}, block {number}:\n{done.stderr}"


APPS = [(page, number, block) for page, number, block in BLOCKS if "paceline worker jobs:app" in block]


@pytest.mark.parametrize(("page", "number", "block"), APPS, ids=[f"{page}:{number}" for page, number, _ in APPS])
def test_a_file_that_commands_load_does_nothing_when_it_is_loaded(
    page: Path, number: int, block: str, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(block)

    done = subprocess.run(
        [sys.executable, "-c", "import jobs"], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "jobs.db").exists()


PYTEST_BLOCKS = [
    (page, number, block) for page, number, block in BLOCKS if re.search(r"^(async )?def test_", block, re.M)
]


@pytest.mark.parametrize(
    ("page", "number", "block"), PYTEST_BLOCKS, ids=[f"{page}:{number}" for page, number, _ in PYTEST_BLOCKS]
)
def test_a_code_block_with_tests_passes_under_pytest(page: Path, number: int, block: str, tmp_path: Path) -> None:
    (tmp_path / "test_block.py").write_text(block)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "test_block.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, f"{page}, block {number}:\n{done.stdout}{done.stderr}"
    assert "1 passed" in done.stdout


def test_there_are_code_blocks_to_run() -> None:
    assert len(BLOCKS) >= 6
    assert APPS


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")

    assert broken == []


def test_links_to_headings_lead_to_one() -> None:
    broken = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            headings = re.findall(r"^#+ (.+)$", (page.parent / target if target else page).read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            if anchor not in slugs:
                broken.append(f"{page.relative_to(ROOT)} -> {target}#{anchor}")

    assert broken == []
