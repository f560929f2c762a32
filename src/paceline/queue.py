"""Queue: a named line of jobs, as users hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack, cast

import msgspec

from paceline.checks import check_count, check_flag, check_name, check_optional_name
from paceline.clock import from_datetime, to_datetime
from paceline.durations import Duration, parse_duration
from paceline.errors import ConfigError, QueueClosed, require
from paceline.job import Explanation, Job, JobState, Move
from paceline.lifecycle.actions import StoreActions
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.enqueue import enqueue
from paceline.limits import AllOf, Kind, Limit
from paceline.limits.composite import check_kind
from paceline.options import JobOptions, new_job
from paceline.stores import shared_store
from paceline.stores.interface import Filter, Store
from paceline.text import show


class Start(msgspec.Struct, frozen=True):
    """One start, on the store's clock: what limits are promises about, and where a late handler began."""

    job_id: str
    at: datetime
    task: str
    group: str | None
    cost: int | dict[str, int]


class Queue:
    """A named line of jobs: `await Queue("webhooks", store=store).add("deliver", {"url": "…"}, group="tenant-1")`."""

    def __init__(
        self,
        name: str,
        *,
        store: str | Store,
        limits: Iterable[Limit | Kind] = (),
        declarations: Declarations | None = None,
    ) -> None:
        self.name = check_name(name, option="queue")
        self._declarations = declarations or Declarations(shared_store(store))
        self._actions = StoreActions(self._declarations)
        self._closed = False
        for limit in _as_limits(self.name, limits):
            self._declarations.add(limit)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    @property
    def store(self) -> Store:
        """The store the queue lives in."""
        return self._declarations.store

    # adding

    async def add(
        self, task: str, data: Any = None, *, within: object = None, **options: Unpack[JobOptions]
    ) -> Job[Any]:
        """Add one job; `GroupFull`, `NeverFits`, `PayloadTooLarge`, `NotSerializable` say why not."""
        self._check_open()
        job = new_job(self.name, task, data, options, max_payload=self.store.max_payload)
        return (await enqueue(self._declarations, [job], within=within))[0]

    async def add_many(
        self, jobs: Iterable[tuple[str, Any] | tuple[str, Any, JobOptions]], *, within: object = None
    ) -> list[Job[Any]]:
        """Add many jobs, all or none: `[("deliver", data), ("deliver", data, {"delay": "5m"})]`."""
        self._check_open()
        require(isinstance(jobs, Iterable), "jobs", jobs, "a list of (task, data) or (task, data, options)")
        maximum = self.store.max_payload
        new = [new_job(self.name, *_parts(item), max_payload=maximum) for item in jobs]
        return await enqueue(self._declarations, new, within=within) if new else []

    # looking

    async def get(self, job_id: str) -> Job[Any] | None:
        """The job of this id in this queue, or None."""
        check_name(job_id, option="job_id")
        store = await self._declarations.ready()
        found = await store.get([job_id])
        return Job(found[0], self._actions) if found and found[0].queue == self.name else None

    async def list(
        self,
        state: str | None = None,
        *,
        task: str | None = None,
        group: str | None = None,
        limit: int = 100,
        after: str | Job[Any] | None = None,
    ) -> list[Job[Any]]:
        """A page of jobs in the order they were added; `after` is the last job of the page before."""
        wanted = Filter(
            queue=self.name,
            state=None if state is None else _state(state),
            task=check_optional_name(task, option="task"),
            group=check_optional_name(group, option="group"),
            limit=check_count(limit, option="limit"),
            after=after.id if isinstance(after, Job) else check_optional_name(after, option="after"),
        )
        store = await self._declarations.ready()
        return [Job(record, self._actions) for record in await store.find(wanted)]

    async def counts(self) -> dict[str, int]:
        """How many jobs are in each of the seven states."""
        return await (await self._declarations.ready()).counts(self.name)

    async def starts(self, since: datetime | None = None) -> Sequence[Start]:
        """The log of starts as the store stamped them, kept at least for the longest window."""
        instant = None if since is None else from_datetime(since, option="since")
        records = await (await self._declarations.ready()).starts(self.name, instant)
        return [Start(each.job_id, to_datetime(each.at), each.task, each.group, each.cost) for each in records]

    async def explain(self, job_id: str) -> Explanation:
        """Why a job waits: which limits refuse it, how full they are, who is ahead, the earliest start."""
        return await self._actions.explain(check_name(job_id, option="job_id"))

    # managing

    async def pause(self, *, task: str | None = None, group: str | None = None) -> None:
        """Start nothing of the queue, of one task or of one group until `resume()`; what runs goes on."""
        await self._set_paused(task, group, True)

    async def resume(self, *, task: str | None = None, group: str | None = None) -> None:
        """Take a pause back."""
        await self._set_paused(task, group, False)

    async def drain(self) -> int:
        """Remove what has not started; returns how many."""
        return await (await self._declarations.ready()).drain(self.name)

    async def clean(self, state: str, older_than: Duration) -> int:
        """Remove jobs that are in a state for longer than this; returns how many."""
        wanted = _state(state)
        age = parse_duration(older_than, option="older_than", zero=True)
        return await (await self._declarations.ready()).clean(self.name, wanted, age)

    async def obliterate(self, force: bool = False) -> int:
        """Remove the queue with everything in it; with active jobs only by force."""
        check_flag(force, option="force")
        return await (await self._declarations.ready()).obliterate(self.name, force)

    async def retry_jobs(self, state: str = "failed") -> int:
        """Run all finished jobs of one state again; returns how many."""
        wanted = _state(state)
        return await (await self._declarations.ready()).move_all(self.name, wanted, Move.RETRY)

    async def promote_jobs(self) -> int:
        """Make all delayed jobs due now; returns how many."""
        return await (await self._declarations.ready()).move_all(self.name, JobState.DELAYED, Move.PROMOTE)

    async def close(self) -> None:
        """Accept no more jobs through this object; the queue itself lives on in the store."""
        self._closed = True

    async def _set_paused(self, task: str | None, group: str | None, paused: bool) -> None:
        require(task is None or group is None, "group", group, "a task or a group, not both at once")
        task, group = check_optional_name(task, option="task"), check_optional_name(group, option="group")
        await (await self._declarations.ready()).pause(self.name, task, group, paused)

    def _check_open(self) -> None:
        if self._closed:
            raise QueueClosed(f"queue {self.name!r} is closed; make a new Queue to add jobs")
        if self._declarations.closed:
            raise QueueClosed(f"the app of queue {self.name!r} is closed; enter it again with `async with app`")


def _as_limits(queue: str, limits: Iterable[Limit | Kind]) -> list[Limit]:
    """Limits as given; bare kinds together are the limit `queue:<name>`."""
    if isinstance(limits, Limit) or not isinstance(limits, Iterable):
        raise ConfigError(
            f"limits={show(limits)} is wrong: expected a list of limits or kinds", option="limits", value=limits
        )
    given = list(limits)
    kinds = [check_kind(limit, option="limits") for limit in given if not isinstance(limit, Limit)]
    named = [limit for limit in given if isinstance(limit, Limit)]
    if kinds:
        named.append(Limit(f"queue:{queue}", kinds[0] if len(kinds) == 1 else AllOf(*kinds), queues=[queue]))
    return named


def _parts(item: object) -> tuple[str, Any, JobOptions]:
    if not isinstance(item, tuple) or len(item) not in (2, 3):
        raise ConfigError(
            f"jobs: {show(item)} is wrong: expected (task, data) or (task, data, options)", option="jobs", value=item
        )
    task, data = item[:2]
    options = item[2] if len(item) == 3 else {}
    require(isinstance(options, Mapping), "options", options, "a mapping of job options, such as {'delay': '5m'}")
    return task, data, cast(JobOptions, dict(options))


def _state(name: str) -> JobState:
    try:
        return JobState(name if isinstance(name, str) else "")
    except ValueError:
        expected = ", ".join(state for state in JobState if state is not JobState.WAITING_CHILDREN)
        raise ConfigError(
            f"state={show(name)} is wrong: expected one of {expected}", option="state", value=name
        ) from None
