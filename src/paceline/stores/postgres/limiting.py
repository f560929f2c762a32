"""What is said about limits, and what every part of the store shares: its space, its queues, its ears, its time."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from paceline.clock import Clock, Micros
from paceline.errors import ConfigError, StoreError
from paceline.forks import abandon, reset_when_forked
from paceline.job import JobRecord
from paceline.limits import Limit
from paceline.limits.admission import Meter, earliest_start
from paceline.limits.rule import decode_kind, encode_kind
from paceline.stores.address import without_password
from paceline.stores.interface import Changed, Grant, Hold, Override, Standing, Target, Usage
from paceline.stores.postgres.calls import Calls, Sending
from paceline.stores.postgres.connections import Connections
from paceline.stores.postgres.ears import ALL, shared_ears
from paceline.stores.postgres.faults import MAY_NOT, fault
from paceline.stores.postgres.listening import Listening, Polling
from paceline.stores.postgres.names import Names
from paceline.stores.postgres.rows import FAILED, failed_in, hold_json, limit_json, limit_of
from paceline.stores.postgres.texts import ACQUIRE, ACQUIRE_LATE
from paceline.stores.server_clock import ServerClock

LEAST_GUARD: Micros = 10_000
"""Below a claim's way to the server and back, every handler would be late."""


class LimitCalls(ABC):
    """The half of the store that is about limits."""

    clock: Clock

    def __init__(self, url: str, schema: str, namespace: str, pooler: bool, options: dict[str, Any]) -> None:
        self.schema = schema
        self.address = without_password(url)
        self.connections = Connections(url, options, prepare=not pooler)
        self.names = Names(schema)
        self.calls = Calls(self.connections, self.names)
        self.ears = shared_ears(url, schema, namespace)
        self._space: int | None = None
        self._queues: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._pooler = pooler
        self._listening: Listening | Polling | None = None
        reset_when_forked(self)

    def forked(self) -> None:
        """A child listens for itself."""
        abandon(self._listening)
        self._listening = None

    # what every part shares

    @property
    def least_guard(self) -> Micros:
        """The shortest guard that is chosen for a rate without one."""
        return 0 if self.clock.virtual else LEAST_GUARD

    @abstractmethod
    async def open(self, within: object = None) -> None:
        """Connect, and find or make our namespace."""

    async def space(self) -> int:
        """The number of our namespace; the store opens with its first use, and with the first one after `close`."""
        while self._space is None:
            await self.open()
        return self._space

    async def queue_id(self, name: str) -> int:
        """The number of a queue; it is made, once for ever, in a transaction of its own."""
        found = self._queues.get(name)
        if found is None:
            found = await self.calls.value("select paceline.queue_of($1::int, $2::text)", await self.space(), name)
            self._queues[name] = found
            self._names[found] = name
        return found

    def start_listening(self) -> None:
        """Hear other processes too, from now on; with a test's clock there are none."""
        if self._listening is not None or self._space is None or self.clock.virtual:
            return
        if self._pooler:
            self._listening = Polling(self.ears)
        else:
            self._listening = Listening(self.connections, self.address, self.names, self._space, self.ears)

    async def stop_listening(self) -> None:
        """Hear nobody any more."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.stop()
            await asyncio.to_thread(listening.join, 2)

    def given_now(self) -> Micros | None:
        """The time that a test says it is; None: the server's."""
        return self.clock.now() if self.clock.virtual else None

    def waited(self, sending: Sending, there: Micros | None) -> Micros:
        """How long a call waited before its stamp, here and there; None there: it was stamped by an earlier call."""
        return 0 if there is None or self.clock.virtual else sending.waited() + there

    def heard(self, now: Micros) -> None:
        """The server said what time it is."""
        if isinstance(self.clock, ServerClock):
            self.clock.heard(now)

    def woken(self, wakes: Iterable[str]) -> None:
        """Tell our own sleepers what a call changed."""
        if self.ears.busy:
            self.ears.hear(self._named(word) for word in wakes if word[0] != FAILED)

    def _named(self, word: str) -> str:
        if word[0] not in "qe":
            return word
        name = self._names.get(int(word[1:]))
        return ALL if name is None else word[0] + name

    @staticmethod
    def cost(cost: int, costs: str | None) -> int | dict[str, int]:
        """A cost as the database keeps it."""
        return cost if costs is None else json.loads(costs)

    # limits

    async def set_limits(self, limits: Sequence[Limit], within: object = None) -> list[Changed]:
        space = await self.space()
        while True:
            rows = [row for (row,) in await self.calls.rows("select paceline.limits($1::int)", space)]
            known = {row["name"]: limit_of(row) for row in rows}
            wanted = [_reconciled(limit, known.get(limit.name)) for limit in limits]
            for limit in wanted:
                _check_scope(limit, known.get(limit.name))
            changed = []
            for limit in wanted:
                old = known.get(limit.name)
                known[limit.name] = limit
                if old is not None and old.numbers != limit.numbers:
                    changed.append(Changed(old, limit))
            wakes = await self.calls.value(
                "select paceline.set_limits($1::int, $2::bigint, $3::text::jsonb, $4::text::jsonb)",
                space,
                self.given_now(),
                json.dumps([limit_json(limit, self.least_guard) for limit in wanted]),
                json.dumps(rows),
                again=False,
            )
            if wakes is not None:
                self.woken(wakes)
                return changed
            # Somebody else declared something meanwhile: compare anew.

    async def drop_limit(self, name: str) -> bool:
        dropped = await self.calls.value(
            "select paceline.drop_limit($1::int, $2::bigint, $3::text)", await self.space(), self.given_now(), name
        )
        if dropped:
            self.ears.hear([ALL])
        return bool(dropped)

    async def limits(self, within: object = None) -> list[Limit]:
        rows = await self.calls.rows("select paceline.limits($1::int)", await self.space())
        return [limit_of(row) for (row,) in rows]

    async def override(self, override: Override, for_: Micros | None) -> None:
        await self.calls.rows(
            """select paceline.set_override($1::int, $2::bigint, $3::text, $4::text, $5::text::jsonb, $6::text,
            $7::bigint, $8::bigint)""",
            await self.space(),
            self.given_now(),
            override.limit,
            override.group,
            json.dumps(encode_kind(override.kind, self.least_guard)),
            override.reason,
            for_,
            override.expires_at,
        )
        self.ears.hear([ALL])

    async def lift(self, limit: str, group: str | None) -> None:
        if await self.calls.value(
            "select paceline.lift($1::int, $2::bigint, $3::text, $4::text)",
            await self.space(),
            self.given_now(),
            limit,
            group,
        ):
            self.ears.hear([ALL])

    async def overrides(self) -> list[Override]:
        rows = await self.calls.rows(
            "select paceline.overrides($1::int, $2::bigint)", await self.space(), self.given_now()
        )
        return [
            Override(
                limit=row["limit"],
                kind=decode_kind(row["kind"]),
                group=row["group"],
                reason=row["reason"],
                expires_at=row["expires_at"],
            )
            for (row,) in rows
        ]

    async def hold(self, holds: Sequence[Hold]) -> None:
        made = await self.calls.value(
            "select paceline.hold($1::int, $2::bigint, $3::text::jsonb)",
            await self.space(),
            self.given_now(),
            json.dumps([hold_json(hold, self.least_guard) for hold in holds]),
            again=False,
        )
        if made:
            self.ears.hear([ALL])

    async def release(self, limit: str, group: str | None) -> None:
        await self._about("release", limit, group)

    async def clear(self, limit: str, group: str | None) -> None:
        await self._about("clear", limit, group)

    async def _about(self, function: str, limit: str, group: str | None) -> None:
        await self.calls.rows(
            f"select paceline.{function}($1::int, $2::bigint, $3::text, $4::text)",
            await self.space(),
            self.given_now(),
            limit,
            group,
        )
        self.ears.hear([ALL])

    async def usage(self, limit: str, group: str | None) -> Usage:
        return _usage(
            await self.settled("select paceline.usage($1::int, $2::bigint, $3::text, $4::text)", limit, group)
        )

    async def settled(self, query: str, *values: object) -> dict[str, Any]:
        """The answer of a read; one that says an override is over that still rules is asked again without that one."""
        space = await self.space()
        found: dict[str, Any] = await self.calls.value(query, space, self.given_now(), *values)
        if found["expired"]:
            try:
                await self.calls.value("select paceline.expire($1::int, $2::bigint)", space, found["now"])
            except StoreError as error:
                if not isinstance(error.__cause__, MAY_NOT):
                    raise
                # Who may only read sees the override until somebody else ends it.
                return found
            found = await self.calls.value(query, space, self.given_now(), *values)
        return found

    async def acquire(
        self,
        targets: Sequence[Target],
        permit: str,
        lease: Micros,
        force: bool = False,
        waits: bool = False,
        late: Micros | None = None,
    ) -> Grant:
        sending = Sending()
        granted, now, until, leased, wakes, guard, waited, refused = await self.calls.row(
            ACQUIRE if late is None else ACQUIRE_LATE,
            await self.space(),
            self.given_now(),
            [target.limit for target in targets],
            [target.group for target in targets],
            [target.cost for target in targets],
            permit,
            lease,
            *((force, waits) if late is None else (late,)),
            again=False,
            sending=sending,
        )
        self.heard(now)
        self.woken(wakes)
        if refused is not None:
            raise fault(json.loads(refused))
        return Grant(granted, now, until, leased, failed_in(wakes), guard, self.waited(sending, waited))

    async def give_back(self, permits: Sequence[str]) -> None:
        wakes = await self.calls.value(
            "select paceline.give_back($1::int, $2::bigint, $3::text[])",
            await self.space(),
            self.given_now(),
            list(permits),
        )
        self.woken(wakes)

    def standing_of(self, job: JobRecord, found: dict[str, Any]) -> Standing:
        """Where a job stands, from what the database knows; the kernel walks through the starts ahead of it."""
        earliest = None
        # Where a slot is missing, nobody knows when one is free.
        if found["waits"] and not any(key["full"] for key in found["keys"]):
            meters = [(_meter(key), key["cost"]) for key in found["keys"]]
            earliest = earliest_start(meters, found["ahead"], max(found["now"], job.due_at))
        paused = [f"queue {job.queue!r}"] if found["paused_queue"] else []
        paused += [f"task {job.task!r}"] if found["paused_task"] else []
        paused += [f"group {job.group!r}"] if found["paused_group"] else []
        return Standing(
            job=job,
            now=found["now"],
            paused=paused,
            known=found["known"],
            keys=[_usage(key) for key in found["keys"]],
            ahead=found["ahead"],
            groups=found["groups"],
            earliest=earliest,
        )


def _reconciled(limit: Limit, old: Limit | None) -> Limit:
    """A limiter's declaration names no jobs: it keeps the scope that the limit of its name has."""
    return limit.with_scope_of(old) if limit.detached and old is not None and not old.detached else limit


def _check_scope(limit: Limit, old: Limit | None) -> None:
    if old is not None and old.scope != limit.scope and not old.detached:
        raise ConfigError(
            f"limit {limit.name!r} is declared as {old!r} in this store, but now as {limit!r}: "
            "one name, one scope. Choose another name, or drop the old limit first",
            option="name",
            value=limit.name,
        )


def _usage(row: dict[str, Any]) -> Usage:
    return Usage(
        limit=row["limit"],
        group=row["group"],
        kind=decode_kind(row["kind"]),
        used=row["used"],
        allowed=row["allowed"],
        hold_until=row["hold_until"],
        hold_reason=row["hold_reason"],
        opens_at=row["opens_at"],
        waiting=row["waiting"],
        now=row["now"],
        reserved_by=row["reserved_by"],
        cost=row["cost"],
        open=row["open"],
    )


def _meter(row: dict[str, Any]) -> Meter:
    """A key with the states that the database has, for the Python kernel to try things on."""
    # The guards that are written are those in force, whoever chose them.
    kind = decode_kind([part | {"auto": False} for part in row["kind"]])
    meter = Meter((row["limit"], row["group"]), kind)
    if row["state"] is not None:
        meter._set_cells([(part, part.load(state)) for part, state in zip(meter.parts, row["state"], strict=True)])
    meter.hold_until = row["hold_until"]
    meter.open = row["open"]
    return meter
