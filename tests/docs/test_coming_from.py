"""The page for people who come from elsewhere leaves nothing out, and every page names only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import paceline
from paceline import App, Job

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coming-from.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]

# Every name, option, default and caveat of the texts that Paceline grew from.
NAMES = {
    "Conveyor, rate limiting": """
        Worker WorkerOptions LimiterOptions limiter max duration concurrency store waiting isRateLimited @conveyor/core
        sliding|per-worker|poll|batch|approximate|distributed|divide|RangeError|reset point|1_000
    """,
    "Conveyor, groups": """
        Queue add addBulk group id maxSize GroupOptions GroupWorkerOptions concurrency limiter fetchNextJob
        groupConcurrency JobOptions JobData groupId FetchOptions excludeGroups getWaitingGroupCount round-robin
        multiplied|races|without a group|on top of
    """,
    "Workglow": """
        ILimiter @workglow/job-queue processJobs next(workerId) IRateLimiterStorage
        canProceed recordJobStart recordJobCompletion getNextAvailableTime setNextAvailableTime clear
        NullLimiter ConcurrencyLimiter maxConcurrentJobs currentRunningJobs nextAllowedStartTime
        RateLimiter RateLimiterWithBackoffOptions RateLimiterOptions backoffDelay jitteredDelay
        maxExecutions windowSizeInSeconds initialBackoffDelay backoffMultiplier maxBackoffDelay
        DelayLimiter delayInMilliseconds EvenlySpacedRateLimiter idealInterval averageDuration windowSizeMs
        CompositeLimiter addLimiter JobQueueServer queueName workerCount limiter storage
        InMemoryRateLimiterStorage SqliteRateLimiterStorage PostgresRateLimiterStorage IndexedDbRateLimiterStorage
        SupabaseRateLimiterStorage setupDatabase recordExecution getExecutionCount getOldestExecutionAtOffset
        RetryableJobError retryDate Retry-After runAfter execute(input
        JOB_LIMITER CONCURRENT_JOB_LIMITER EVENLY_SPACED_JOB_RATE_LIMITER NULL_JOB_LIMITER
        jobqueue.limiter jobqueue.limiter.concurrent jobqueue.limiter.rate.evenlyspaced jobqueue.limiter.null
        1000|600000|service tokens|default 50|floor of 0|jitter|short-circuit|Promise|one process|implicit concurrency
    """,
    "the lesson": """
        JobRateLimiter canProcess record maxPerMinute windowMs RATE_LIMITS SERVICE_LIMITS types
        pending locked_at locked_by scheduled_at POLL_INTERVAL_MS WORKER_ID dequeue processJob completeJob failJob
        5 seconds|1000 ms|exercise|after success|instead of waiting in a loop
    """,
}


@pytest.mark.parametrize("text", NAMES)
def test_every_name_of_a_text_is_on_the_page(text: str) -> None:
    lines = NAMES[text].strip().splitlines()
    words = [word for line in lines if "|" not in line for word in line.split()]
    phrases = [phrase.strip() for line in lines if "|" in line for phrase in line.split("|")]

    missing = [name for name in words + phrases if name not in PAGE]

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_a_page_names_only_methods_that_exist(page: Path) -> None:
    app = App("memory://")
    things = {"app": app, "queue": app.queue(), "worker": app.worker(), "limiter": app.limiter("x"), "job": Job}
    used = re.findall(r"\b(app|queue|worker|limiter|job)\.([a-z_]+)\b", _without_others(page))

    unknown = [f"{word}.{attribute}" for word, attribute in used if not hasattr(things[word], attribute)]

    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_a_page_imports_only_names_that_exist(page: Path) -> None:
    imported = re.findall(r"^from paceline import (.+)$", page.read_text(), re.MULTILINE)
    names = {name.strip() for line in imported for name in line.split(",")}

    assert {name for name in names if not hasattr(paceline, name)} == set()


def _without_others(page: Path) -> str:
    """The page without the columns that name another product's methods, and without file names and limiter names."""
    text = page.read_text()
    if page.name == "coming-from.md":
        text = "\n".join(line.split(" | ", 1)[-1] if line.startswith("| ") else line for line in text.splitlines())
    return re.sub(r"\b[\w/-]+\.(py|md|db|sql|lua|toml)\b|\bjobqueue\.limiter[.a-z]*", "", text)
