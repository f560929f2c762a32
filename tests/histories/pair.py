"""Two stores through one history: every step is performed on both, and every answer is the same.

The memory store is the reference; the model test holds the reference itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from paceline.errors import PacelineError
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.stores import open_store
from paceline.stores.interface import (
    Ask,
    Begun,
    Claim,
    Filter,
    Finish,
    Hold,
    Lease,
    Outcome,
    Override,
    Standing,
    StartRecord,
    Target,
    Usage,
)

from ..clocks import HandClock
from ..stores.files import OwnFile
from .words import KINDS, QUEUES, START, Step, limit, of_groups


class Different(AssertionError):
    """The two stores gave different answers to one step."""


def plain(answer: Any) -> Any:
    """An answer as lists and mappings. Numbers that jobs are ordered by may have gaps after a refused insert."""
    if isinstance(answer, list) and answer and isinstance(answer[0], StartRecord):
        answer = sorted(answer, key=lambda start: (start.at, start.job_id))  # those of one instant in any order
    if isinstance(answer, list | tuple):
        return [plain(each) for each in answer]
    if isinstance(answer, PacelineError):
        return [type(answer).__name__, str(answer)]
    if isinstance(answer, msgspec.Struct):
        fields = {name: plain(getattr(answer, name)) for name in answer.__struct_fields__}
        if isinstance(answer, JobRecord):
            fields["order"] = answer.order > 0
        if isinstance(answer, Claim) and answer.needs_room:
            fields["ask_again_at"] = None  # the worker asks again when its own limiter has room
        return fields
    if isinstance(answer, Usage | Standing):
        fields = {field.name: plain(getattr(answer, field.name)) for field in dataclasses.fields(answer)}
        if isinstance(answer, Usage) and answer.allowed is not None:
            fields["used"] = min(answer.used, answer.allowed)  # more than full: how much more is no store's promise
        if isinstance(answer, Usage):
            fields["opens_at"] = max(answer.opens_at, answer.now)  # open is open, whatever it was that ended
        return fields
    return answer


class Pair:
    """The reference and another store, and what a generator may want to know of them."""

    def __init__(self, opener: Callable[[HandClock], Any]) -> None:
        self.clock = HandClock(START)
        self.reference, self.other = open_store("memory://", clock=self.clock), opener(self.clock)
        self.rereads = isinstance(self.other, OwnFile) and self.other.handles > 1
        """Every call meets what another handle wrote: lanes are filed anew, and when exactly to ask again may differ
        within what the model test allows. That a claim says "now" or "later" may not."""
        self.steps: list[Step] = []
        self.ids: list[str] = []
        self.fences: dict[str, int] = {}
        """The newest fence of every job that ever started, newest last."""
        self.granted: dict[str, int] = {}
        """When each permit was granted."""
        self.declared: list[str] = []
        self.ask_again_at = 0

    async def open(self) -> None:
        await self.reference.open()
        await self.other.open()

    async def close(self) -> None:
        await self.other.close()

    async def perform(self, step: Step) -> None:
        self.steps.append(step)
        name, *words = step
        await getattr(self, "do_" + name)(*words)

    async def both(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        answers: list[Any] = []
        for store in (self.reference, self.other):
            try:
                answers.append(await call(store))
            except PacelineError as error:
                answers.append(error)
        expected, got = plain(answers[0]), plain(answers[1])
        if self.rereads and isinstance(answers[0], Claim) and isinstance(answers[1], Claim):
            for claim in (expected, got):
                claim["ask_again_at"] = claim["ask_again_at"] is None or claim["ask_again_at"] > claim["now"]
        if expected != got:
            raise Different("\n".join(differences(expected, got)))
        return answers[0]

    # what may happen

    async def do_insert(self, specs: list[dict[str, Any]]) -> None:
        jobs = [NewJob(data=b'{"n": "\xc3\xa9"}', attempts=3, **spec) for spec in specs]
        self.ids += [job.id for job in jobs if job.id not in self.ids]
        await self.both(lambda store: store.insert(jobs))

    async def do_claim(self, spec: dict[str, Any], ends: list[dict[str, Any]]) -> None:
        tasks = frozenset(spec["tasks"]) if spec.get("tasks") else None
        also = tuple(name for name in spec.get("also", ()) if name in self.declared)
        ask = Ask(**{**spec, "queues": tuple(spec["queues"]), "tasks": tasks, "also": also})
        finishes = [self.ending(end) for end in ends]
        answer = await self.both(lambda store: store.claim(ask, finishes))
        if not isinstance(answer, PacelineError):
            for job in answer.jobs:
                self.fences.pop(job.id, None)
                self.fences[job.id] = job.fence
            self.ask_again_at = answer.ask_again_at

    def ending(self, end: dict[str, Any]) -> Finish:
        holds = tuple(Hold(**hold) for hold in end.get("holds", ()) if hold["limit"] in self.declared)
        fence = self.fences.get(end["id"], 0) - end.get("stale", 0)
        rest = {name: end[name] for name in ("after", "at", "when_open", "error") if name in end}
        return Finish(id=end["id"], fence=fence, outcome=Outcome(end["outcome"]), result=b"7", holds=holds, **rest)

    async def do_finish(self, ends: list[dict[str, Any]]) -> None:
        finishes = [self.ending(end) for end in ends]
        await self.both(lambda store: store.finish(finishes))

    async def do_wait(self, microseconds: int) -> None:
        self.clock.at += microseconds

    async def do_extend(self, worker: str, ids: list[str], permits: list[str], lease: int) -> None:
        held = [Lease(id, self.fences.get(id, 0)) for id in ids] + [Lease(permit, 0) for permit in permits]
        await self.both(lambda store: store.extend(worker, held, lease))

    async def do_move(self, ids: list[str], move: str) -> None:
        await self.both(lambda store: store.move(ids, Move(move)))

    async def do_pause(self, queue: str, task: str | None, group: str | None, paused: bool) -> None:
        await self.both(lambda store: store.pause(queue, task, group, paused))

    async def do_declare(self, named: dict[str, str]) -> None:
        limits = [limit(name, kind) for name, kind in named.items()]
        await self.both(lambda store: store.set_limits(limits))
        self.declared = sorted({*self.declared, *named})

    async def do_drop(self, name: str) -> None:
        await self.both(lambda store: store.drop_limit(name))
        self.declared = [other for other in self.declared if other != name]

    async def do_override(self, name: str, group: str | None, kind: str, length: int | None) -> None:
        said = Override(limit=name, kind=KINDS[kind], group=group)
        await self.both(lambda store: store.override(said, length))

    async def do_lift(self, name: str, group: str | None) -> None:
        await self.both(lambda store: store.lift(name, group))

    async def do_hold(self, hold: dict[str, Any]) -> None:
        await self.both(lambda store: store.hold([Hold(**hold)]))

    async def do_release(self, name: str, group: str | None) -> None:
        await self.both(lambda store: store.release(name, group))

    async def do_clear(self, name: str, group: str | None) -> None:
        await self.both(lambda store: store.clear(name, group))

    async def do_acquire(self, targets: list[list[Any]], permit: str, lease: int, force: bool, waits: bool) -> None:
        wanted = [Target(*target) for target in targets]
        answer = await self.both(lambda store: store.acquire(wanted, permit, lease, force, waits))
        if not isinstance(answer, PacelineError) and answer.granted:
            self.granted[permit] = answer.now

    async def do_acquire_late(self, targets: list[list[Any]], permit: str, lease: int) -> None:
        """Sent at most once for each grant, as its client does."""
        wanted, late = [Target(*target) for target in targets], self.granted.pop(permit, None)
        if late is not None:
            await self.both(lambda store: store.acquire(wanted, permit, lease, late=late))

    async def do_decide_again(self, ids: list[str]) -> None:
        held = [Lease(id, self.fences.get(id, 0)) for id in ids]
        await self.both(lambda store: store.decide_again(held))

    async def do_begun(self, ids: list[str], permits: list[str], ago: int = 0) -> None:
        said = [Begun(id, self.fences.get(id, 0), ago * place) for place, id in enumerate(ids)]
        said += [Begun(permit, 0, ago) for permit in permits]
        await self.both(lambda store: store.begun(said))

    async def do_give_back(self, permit: str) -> None:
        await self.both(lambda store: store.give_back([permit]))

    async def do_prune(self) -> None:
        await self.both(lambda store: store.prune())

    async def do_clean(self, queue: str, state: str, older_than: int) -> None:
        await self.both(lambda store: store.clean(queue, JobState(state), older_than))

    async def do_move_all(self, queue: str, state: str, move: str) -> None:
        await self.both(lambda store: store.move_all(queue, JobState(state), Move(move)))

    async def do_drain(self, queue: str) -> None:
        await self.both(lambda store: store.drain(queue))

    async def do_obliterate(self, queue: str, force: bool) -> None:
        await self.both(lambda store: store.obliterate(queue, force))

    async def do_reopen(self) -> None:
        """A program that ends and starts again; what a memory store knows ends with it, so that one goes on."""
        if isinstance(self.other, OwnFile):
            await self.other.reopen()
        else:
            await self.other.close()
            await self.other.open()

    # what may be read

    async def do_counts(self, queue: str) -> None:
        await self.both(lambda store: store.counts(queue))

    async def do_standing(self, id: str) -> None:
        await self.both(lambda store: store.standing(id))

    async def do_usage(self, name: str, group: str | None) -> None:
        await self.both(lambda store: store.usage(name, group))

    async def do_find(self, filter: dict[str, Any]) -> None:
        await self.both(lambda store: store.find(Filter(**filter)))

    async def do_read_all(self) -> None:
        """Everything that can be read."""
        await self.both(lambda store: store.get(self.ids))
        for queue in QUEUES:
            await self.both(lambda store, queue=queue: store.counts(queue))
            await self.both(lambda store, queue=queue: store.starts(queue, None))
            everything = Filter(queue=queue, limit=10_000)
            await self.both(lambda store, page=everything: store.find(page))
        await self.both(lambda store: store.queues())
        await self.both(lambda store: store.overrides())
        await self.both(lambda store: store.limits())
        for name in self.declared:
            for group in ("u", "z") if of_groups(name) else (None,):
                await self.both(lambda store, key=(name, group): store.usage(*key))


def differences(expected: Any, got: Any, path: str = "") -> list[str]:
    """Where two answers differ, one line each."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        return [line for key in expected for line in differences(expected[key], got[key], f"{path}.{key}")]
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = enumerate(zip(expected, got, strict=True))
        return [line for place, (one, two) in pairs for line in differences(one, two, f"{path}[{place}]")]
    return [] if expected == got else [f"{path or 'answer'}: memory has {shown(expected)}, the store has {shown(got)}"]


def shown(answer: Any) -> str:
    """An answer in few words: of jobs only their ids."""
    if isinstance(answer, list) and any(isinstance(each, dict) and "id" in each for each in answer):
        return repr([each["id"] if isinstance(each, dict) else each for each in answer])
    return repr(answer)
