"""Every program in examples/ runs, and comes to the outcome it was written to show."""

from __future__ import annotations

import importlib.util
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..servers.fresh import database, server, wipe_text
from ..servers.redis import empty_redis

EXAMPLES = Path(__file__).parents[2] / "examples"
ALL = sorted(str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.glob("*/*.py"))


def main_of(name: str) -> Callable[..., Any]:
    """The `main` of an example."""
    spec = importlib.util.spec_from_file_location(Path(name).name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main: Callable[..., Any] = module.main
    return main


@pytest.mark.parametrize("name", [name for name in ALL if name != "exercises/exercise_3_webhooks"])
def test_an_example_runs_as_a_script_and_says_something(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [name])

    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")

    assert capsys.readouterr().out.strip()


def test_every_example_has_a_test_of_its_outcome() -> None:
    tested = set(re.findall(r'main_of\("([a-z0-9_/]+)"\)', Path(__file__).read_text()))

    assert tested == set(ALL)


def test_every_example_is_in_the_table_and_every_row_is_an_example() -> None:
    listed = re.findall(r"\]\(([a-z0-9_/]+)\.py\)", (EXAMPLES / "README.md").read_text())

    assert sorted(listed) == ALL


# worker limits


async def test_ten_jobs_per_second() -> None:
    assert await main_of("worker_limits/ten_jobs_per_second")() == [10, 20, 30, 35]


async def test_a_hundred_emails_per_minute() -> None:
    assert await main_of("worker_limits/hundred_emails_per_minute")() == [100, 200, 250]


async def test_rate_and_concurrency_bind_both() -> None:
    # Five at once that take 100 ms could start 50 a second: the rate binds. Those that take 500 ms can start 10.
    assert await main_of("worker_limits/rate_and_concurrency")() == {"quick": (5, 20), "slow": (5, 10)}


async def test_a_window_slides() -> None:
    starts = await main_of("worker_limits/a_window_that_slides")()

    assert starts == [0.0] + [0.9] * 9 + [1.0] + [1.9] * 9


async def test_the_table_of_scopes_as_equalities() -> None:
    assert await main_of("worker_limits/scope_of_a_limit")() == {
        "1 worker, limiter 10/s": 10,
        "3 workers, limiter 10/s each": 30,
        "3 workers, limiter 3/s each": 9,
        "1 worker, queue limit 10/s": 10,
        "3 workers, queue limit 10/s": 10,
    }


async def test_a_batch_counts_each_of_its_jobs() -> None:
    assert await main_of("worker_limits/a_batch_counts_each_job")() == [10, 10, 5, 10, 10, 5, 10]


async def test_limited_jobs_stay_waiting() -> None:
    counts, attempts, why = await main_of("worker_limits/limited_jobs_stay_waiting")()

    assert (counts["waiting"], counts["delayed"], counts["completed"], attempts) == (3, 0, 2, 0)
    assert why == (
        "job … (call) is waiting: limit 'queue:api-calls' is full, 2 of 2, for 50s; 2 jobs of its group go first; "
        "the earliest start is in 1m50s"
    )


def test_wrong_values_are_named_with_what_is_expected() -> None:
    said = main_of("worker_limits/wrong_values")()

    assert said["max is 0"] == "max=0 is wrong: expected a whole number of at least 1"
    assert said["multiplier"] == "multiplier=1 is wrong: expected a number above 1"
    assert all(" is wrong: expected " in text for text in said.values())


# types and services


async def test_each_type_has_its_own_limit() -> None:
    started = await main_of("types_and_services/rate_limits")()

    assert started == {"send_webhook": 30, "sync_inventory": 60, "send_email": 120, "make_report": 200}


async def test_types_of_one_service_share_its_limit() -> None:
    assert await main_of("types_and_services/service_limits")() == {"email_provider": 120, "payment_gateway": 60}


async def test_asking_and_counting_in_one_step_lets_exactly_five_through() -> None:
    assert await main_of("types_and_services/job_rate_limiter")() == (10, 5)


async def test_a_limited_type_stops_nobody() -> None:
    assert await main_of("types_and_services/nobody_waits_for_another_type")() == ([0.0, 60.0], [10.0])


# exercises


async def test_b5_exercise_1_five_per_minute() -> None:
    assert await main_of("exercises/exercise_1_five_per_minute")() == [5, 10, 15, 20]


async def test_b6_exercise_2_two_types() -> None:
    assert await main_of("exercises/exercise_2_two_types")() == [
        {"send_webhook": 30, "send_email": 120},
        {"send_webhook": 60, "send_email": 240},
        {"send_webhook": 90, "send_email": 300},
    ]


async def test_b7_exercise_3_webhooks_to_a_service_that_answers_429() -> None:
    storm, paced = await main_of("exercises/exercise_3_webhooks")()

    # Without a limit: whatever comes after the quota is refused three times and fails. (On a machine so slow that
    # the run takes a second, the service may have room again.)
    assert storm.delivered + storm.failed == 100 and storm.delivered >= 50
    assert (storm.failed > 0 and storm.refused >= 3 * storm.failed) or storm.starts[-1] >= 1
    # With the limit: all arrive at the first attempt, and no second has more starts than the quota.
    assert (paced.delivered, paced.failed, paced.attempts) == (100, 0, 100)
    assert all(later - earlier >= 1 for earlier, later in zip(paced.starts, paced.starts[50:], strict=False))
    # The service counts arrivals: it has no reason to refuse as long as nothing arrives later than the guard allows.
    assert paced.refused == 0 or paced.worst_lag > 0.5


# groups


async def test_groups_take_turns() -> None:
    first = await main_of("groups/assign_jobs_to_groups")()

    assert first == ["tenant-1", "tenant-2", "tenant-3", "tenant-1", "tenant-3", "tenant-1", "tenant-1"]


async def test_two_at_once_per_group_over_three_workers() -> None:
    most = await main_of("groups/concurrency_per_group")()

    assert most == {"no group": 10, "tenant-1": 2, "tenant-2": 2, "tenant-3": 2}


async def test_ten_per_minute_per_group_over_three_workers() -> None:
    minutes = await main_of("groups/rate_per_group")()

    assert minutes == [{"tenant-1": 10, "tenant-2": 10}] * 2 + [{"tenant-1": 5, "tenant-2": 5}]


async def test_a_full_group_refuses() -> None:
    accepted, said, of_the_bulk = await main_of("groups/group_max_size")()

    assert (accepted, of_the_bulk) == (10, 0)
    assert said.startswith("group 'tenant-1' has 10 jobs that have not started and its maximum size is 10")


async def test_no_tenant_monopolizes_the_queue() -> None:
    most, starts = await main_of("groups/multi_tenant_fairness")()

    assert most == {"loud": 3, "quiet-1": 3, "quiet-2": 3}
    assert starts == {"loud": 50, "quiet-1": 20, "quiet-2": 20}


async def test_a_user_has_ten_videos_waiting() -> None:
    assert await main_of("groups/per_user_job_limits")() == [
        "user 7: accepted",
        "user 7: 10 of 10 wait already, please try later",
        "user 8: accepted",
        "user 7: accepted",
    ]


async def test_each_provider_has_its_limits() -> None:
    assert await main_of("groups/api_limits_per_provider")() == {"github": 30, "stripe": 45}


# limiters


async def test_the_six_methods() -> None:
    assert await main_of("limiters/six_methods")() == {
        "free": True,
        "after two starts": False,
        "next in": "0:01:00",
        "after a completion": False,
        "the window is free, but held": False,
        "held for": "0:04:00",
        "cleared": True,
    }


async def test_the_worker_loop_in_steps_and_in_one() -> None:
    assert await main_of("limiters/the_worker_loop")() == (4, 1)


async def test_the_null_limiter_is_always_free() -> None:
    assert await main_of("limiters/null_limiter")() == (True, True, True)


async def test_the_concurrency_limiter() -> None:
    assert await main_of("limiters/concurrency_limiter")() == [True, False, True, False, False, True]


async def test_the_rate_limiter_backs_off_when_the_service_refuses() -> None:
    first_minute, waits = await main_of("limiters/rate_limiter_with_backoff")()

    assert first_minute == 100
    for number, wait in enumerate(waits):
        least = min(2**number, 600)
        assert least <= wait <= 2 * least
    assert len(waits) >= 12  # the last ones at the maximum


async def test_the_storages_give_the_same_answers(tmp_path: Path) -> None:
    database().execute(wipe_text())
    urls = ["memory://", f"sqlite:///{tmp_path / 'limits.db'}", server().url(), empty_redis()]

    answers = [await main_of("limiters/storages")(url) for url in urls]

    assert answers == [(100, True)] * 4


async def test_what_a_storage_answers() -> None:
    assert await main_of("limiters/what_a_storage_answers")() == {
        "in the window": 4,
        "jobs since a second ago": 3,
        "third start": "0:00:01 ago",
        "held for": "0:00:30",
        "after clear": (0, None),
    }


async def test_the_delay_limiter() -> None:
    starts, default = await main_of("limiters/delay_limiter")()

    assert starts == [0, 200, 400, 600, 800, 1000]
    assert repr(default) == "Delay('50ms')"


async def test_even_spacing_whatever_jobs_take() -> None:
    starts = await main_of("limiters/evenly_spaced")()

    assert starts == {"1ms": [0, 1, 2, 3, 4], "10s": [0, 1, 2, 3, 4]}


async def test_the_composite_limiter() -> None:
    assert await main_of("limiters/composite_limiter")() == {
        "one kind": True,
        "five running": (False, False, True),
        "one ended": True,
        "next in": "0:02:00",
        "cleared": True,
    }


async def test_a_limiter_that_is_added_at_run_time_binds_from_then_on() -> None:
    starts = await main_of("limiters/add_a_limiter_at_run_time")()

    assert starts == [0] * 12 + [5000] * 10 + [6000] * 2 + [10000, 10100, 10200]


async def test_three_workers_under_one_limiter() -> None:
    # A job of 7 s holds its slot longer than the three intervals of 2 s: the fourth start waits for the first end.
    assert await main_of("limiters/job_queue_server")() == (3, [0, 2, 4, 7, 9, 11])


async def test_a_retry_at_a_date() -> None:
    assert await main_of("limiters/retry_at_a_date")() == ([0, 90], "https://example.org: 200", 2)


async def test_a_retry_without_a_date_waits_for_its_limits() -> None:
    assert await main_of("limiters/retry_without_a_date")() == ([0, 60], 2)


async def test_a_429_holds_the_limit_for_everybody() -> None:
    starts, attempts, why = await main_of("limiters/hold_after_a_429")()

    assert (starts, attempts) == ([0, 30, 30], 1)
    assert why == (
        "limit 'api' is held for 20s (429 in task 'call'); 1 job of its group goes first; the earliest start is in 20s"
    )


async def test_the_default_names() -> None:
    found = await main_of("limiters/default_names")()

    assert found == {
        "before it is declared": (
            "limiter 'jobqueue.limiter.concurrent' is not declared; "
            "declare it with app.limit('jobqueue.limiter.concurrent', kind)"
        ),
        "jobqueue.limiter": "10 of 10 at once",
        "jobqueue.limiter.concurrent": "5 of 10 at once",
        "jobqueue.limiter.rate.evenlyspaced": "1 of 10 at once",
        "jobqueue.limiter.null": "10 of 10 at once",
    }


async def test_an_own_limiter_beside_one_of_ours() -> None:
    starts, running = await main_of("limiters/own_limiter")()

    assert starts == [*(f"01 {hour:02}:00" for hour in range(9, 17)), "02 09:00", "02 10:00"]
    assert running == 0


def test_a_limit_over_processes() -> None:
    assert main_of("limiters/limit_over_processes")() == {"rate": 10, "slots": 7}


# recipes


async def test_recipe_1_an_ai_provider() -> None:
    assert await main_of("recipes/recipe_1_ai_provider")() == (5, [50, 50, 20])


async def test_recipe_2_gentle_crawling() -> None:
    assert await main_of("recipes/recipe_2_gentle_crawling")() == {
        "10ms": [0, 6, 12, 18, 24, 30],
        "20s": [0, 6, 12, 18, 24, 30],
    }


async def test_recipe_3_several_providers() -> None:
    assert await main_of("recipes/recipe_3_several_providers")() == {"openai": (10, 500), "ollama": (2, 12)}


async def test_recipe_4_no_limit() -> None:
    assert await main_of("recipes/recipe_4_no_limit")() == (80, 100)
