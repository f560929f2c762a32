"""The bench runs: a tiny round of every suite that ours can do alone, and the words and pictures made of results."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..servers.fresh import empty_postgres
from ..servers.redis import empty_redis

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench import docs  # noqa: E402
from bench.cases import Case, Size  # noqa: E402
from bench.pictures import pictures  # noqa: E402
from bench.places import KINDS, Place  # noqa: E402
from bench.report import Table, short  # noqa: E402
from bench.suites import SUITES, binding, ceilings, flat, latency, resources, shared, size, speed  # noqa: E402
from bench.systems import PEERS, STORES  # noqa: E402
from bench.targets import verdicts  # noqa: E402


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of each kind."""
    if request.param == "postgres":
        url = empty_postgres()
    elif request.param == "redis":
        url = empty_redis()
    else:
        url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    return KINDS[request.param](url)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A measurement freezes what is there; other tests want it back."""
    yield
    gc.unfreeze()


def store_of(place: Place) -> str:
    return next(name for name, kind in KINDS.items() if isinstance(place, kind))


@pytest.mark.parametrize("shape", ["plain", "tenants"])
async def test_jobs_get_in_and_through_on_every_store(place: Place, shape: str) -> None:
    found = await speed.measure(place, Case("speed", store_of(place), f"ours:{shape}", 400))

    assert found["jobs"] == 400
    assert all(found[column] > 0 for column in speed.COLUMNS)


async def test_one_claim_is_timed_at_every_size(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "WARM_UP", 1)

    found = await flat._depths(place, ((20, 2), (60, 6)), 3, flat.CLOCKS["memory"])

    names = ["20 jobs in 2 groups", "60 jobs in 6 groups"]
    assert list(found) == [f"{name}, {state}" for state in ("ready", "all but one blocked") for name in names]


async def test_jobs_groups_and_keys_are_weighed(tmp_path: Path) -> None:
    place = KINDS["sqlite"](f"sqlite:///{tmp_path / 'jobs.db'}")

    found = await size.measure(place, Case("size", "sqlite", "bytes", 300))

    assert found["job"] > 0 and found["key"] > 0


async def test_a_worker_is_weighed_idle_and_under_load(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "IDLE", 0.1)
    store = store_of(place)

    found = await resources.measure(place, Case("resources", store, "ours:plain", 100))

    assert found["jobs"] == 100 and found["idle_memory"] > 5 and found["memory"] > 5
    assert (found["stall_cpu_ms"] or 0) > 0 if store != "memory" else found["stall_cpu_ms"] is None
    assert (found["connections"] or 0) > 0 if store in ("postgres", "redis") else found["connections"] is None
    assert (found["wal"] or 0) > 0 if store == "postgres" else found["wal"] is None
    assert [len(table.rows) for table in resources.tables({f"{store} ours": [found]})] == [1, int(store != "memory")]


async def test_a_start_elsewhere_is_timed(tmp_path: Path) -> None:
    place = KINDS["sqlite"](f"sqlite:///{tmp_path / 'jobs.db'}")

    found = await latency.measure(place, Case("latency", "sqlite", "ours:plain", 3))

    assert 0 < found["p50"] <= found["max"]


async def test_two_processes_share_a_limit(tmp_path: Path) -> None:
    place = KINDS["sqlite"](f"sqlite:///{tmp_path / 'jobs.db'}")

    found = await shared.measure(place, Case("shared", "sqlite", "ours:limit", 200, 2))

    assert found["drain"] > 0


async def test_a_limit_that_binds_is_kept_and_told() -> None:
    place = KINDS["memory"]("memory://")

    found = await binding.measure(place, Case("binding", "memory", "ours:plain", 120))

    assert (found["worst"], found["worst_begun"]) == (100, 100)
    assert found["worst_arrived"] >= 100


async def test_the_bare_store_is_measured(tmp_path: Path) -> None:
    place = KINDS["sqlite"](f"sqlite:///{tmp_path / 'jobs.db'}")

    found = await ceilings.measure(place, Case("ceilings", "sqlite", "bare", 1_000))

    assert all(found[column] > 0 for column in speed.COLUMNS)


def test_the_command_measures_saves_and_tells() -> None:
    words = ["-m", "bench.run", "size", "--quick", "--store", "memory"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "a waiting job" in done.stdout and "paceline: " in done.stdout
    assert done.stderr == ""  # no bar: this is no terminal
    saved = json.loads((ROOT / "bench" / "results" / "partial" / "size.json").read_text())
    assert saved["results"]["memory bytes"][0]["job"] > 0


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", SUITES)
def test_every_suite_names_each_of_its_cases_once(name: str, quick: bool) -> None:
    suite = __import__(f"bench.suites.{name}", fromlist=["cases"])

    keys = [case.key for case in suite.cases(Size(quick))]

    assert keys and len(keys) == len(set(keys))


def test_every_peer_has_an_adapter_and_its_settings_are_explained() -> None:
    page = (ROOT / "bench" / "README.md").read_text().lower()

    for peer in PEERS:
        assert (ROOT / "bench" / "adapters" / f"{peer.system}.py").exists()
        assert peer.system in page


def test_a_table_has_its_numbers_to_the_right() -> None:
    table = Table(["what", "n"], [["a", "1"], ["long name", "1,000"]])

    assert table.text().splitlines()[2:] == ["a              1", "long name  1,000"]
    assert table.markdown().splitlines()[1] == "| --- | ---: |"
    assert [short(number) for number in (None, 0.123, 12.34, 1234.5, -12.34)] == ["–", "0.12", "12.3", "1,234", "-12.3"]


def runs(label: str, **numbers: list[float]) -> list[dict[str, Any]]:
    return [{"label": label, **dict(zip(numbers, each, strict=True))} for each in zip(*numbers.values(), strict=True)]


def test_a_target_is_set_beside_the_fastest_setting_of_the_peers() -> None:
    measured = {
        "speed": {
            "redis ours:plain": runs("ours", drain=[4.0, 9.0, 8.0], bulk=[5.0, 5.0, 5.0]),
            "redis ours:limit": runs("ours", drain=[4.0, 4.0, 4.0]),
            "redis dramatiq:8": runs("Dramatiq, 8 threads", drain=[1.0, 1.0, 1.0]),
            "redis dramatiq:32": runs("Dramatiq, 32 threads", drain=[1.0, 3.0, 2.0]),
            "redis bullmq:100": runs("BullMQ", drain=[10.0, 10.0, 10.0], bulk=[4.0, 4.0, 4.0]),
        }
    }

    rows = verdicts(measured).rows

    assert rows == [
        [
            "redis: drain beside Dramatiq, taskiq, SAQ, Celery",
            "≥ 4.00 ×",
            "4.00 ×",
            "3.00 × to 4.00 ×",
            "met",
            "Dramatiq, 32 threads",
        ],
        ["redis: drain beside BullMQ on Node", "≥ 1.00 ×", "0.80 ×", "0.40 × to 0.90 ×", "not met", "BullMQ"],
        ["redis: bulk adds beside BullMQ on Node", "≥ 1.00 ×", "1.25 ×", "1.25 × to 1.25 ×", "met", "BullMQ"],
        ["redis: cost of a limit that does not bind", "≤ 20%", "50%", "0% to 56%", "not met", ""],
    ]


def test_the_page_and_its_pictures_show_the_committed_results() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    measured, about = docs.load()

    assert set(measured) == set(SUITES)
    assert docs.render(page, measured, about) == page
    for name, drawn in pictures(measured).items():
        assert (ROOT / "docs" / "pictures" / name).read_text() == drawn


def test_the_page_names_suites_that_are_of_another_run_than_most() -> None:
    def results(measured: str) -> dict[str, Any]:
        return {"about": {"measured": measured, "paceline": "1.0, abc", "load_before": 0.5}, "quick": False}

    one, other = results("monday"), results("tuesday")

    assert docs.provisional({"speed": one, "size": one}) == ""
    assert docs.provisional({"speed": one, "size": other, "flat": one}) == (
        "size: of another run (tuesday, 1.0, abc, load 0.5)"
    )


def test_no_figure_stands_in_the_page_by_hand() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()

    prose = docs.MARKS.sub("", page)
    figures = re.findall(r"\d[\d,.]*\s?(?:×|%|ms|µs|jobs/s|/s)", prose)

    assert figures == []
