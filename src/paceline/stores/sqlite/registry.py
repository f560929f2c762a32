"""The limits of a namespace by name, and the meters that were looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from paceline.clock import Micros
from paceline.limits.rule import Key, decode_kind, decode_limit, encode_kind, encode_limit
from paceline.stores.interface import Changed, Override
from paceline.stores.sqlite.meters import SqliteMeter, kind_from, kind_text
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.registry import LaneMeter, Registry

if TYPE_CHECKING:
    from paceline.stores.sqlite.state import SqliteState

SQL = statements("limits")
SPACE = statements("space")
KEPT = 20_000
"""So many meters stay in memory between transactions."""


class Reserved(dict[LaneMeter, None]):
    """The meters that are kept for somebody, in the order in which they were."""

    def __init__(self, state: SqliteState) -> None:
        super().__init__()
        self._state = state

    def __setitem__(self, meter: LaneMeter, value: None) -> None:
        if meter not in self:
            meter.reserved_place = self._state.next_id()  # type: ignore[attr-defined]
        super().__setitem__(meter, value)


class SqliteRegistry(Registry):
    """The limits of a namespace, and the meters that were looked at."""

    def __init__(self, state: SqliteState) -> None:
        super().__init__()
        self.state = state
        self.epoch = 0
        """Grows when others may have changed something: meters are then looked at again before they are used."""
        self.rules_changed = False
        self.reserved: dict[LaneMeter, None] = Reserved(state)
        self._numbered: dict[int, SqliteMeter] = {}

    def forget(self) -> None:
        """Others have written: nothing here may be trusted without a look."""
        self.epoch += 1
        if len(self.meters) > KEPT:
            self.forget_meters()
        for key in [key for key, meter in self.meters.items() if not meter.revision]:  # type: ignore[attr-defined]
            del self.meters[key]
            del self.by_limit[key[0]][key]
        self.reserved.clear()
        rows = self.state.db.execute(SQL["reserved"], (self.state.space,)).fetchall()
        for meter in [self.meter(name, group or None) for name, group in rows]:
            dict.__setitem__(self.reserved, meter, None)

    def forget_meters(self) -> None:
        """Keep no meter in memory."""
        self.meters.clear()
        self.by_limit.clear()
        self._numbered.clear()

    def read_rules(self) -> None:
        """Take over limits, overrides and holds of whole limits."""
        row = self.state.db.execute(SPACE["rules"], (self.state.space,)).fetchone()
        document = msgspec.json.decode(row[0]) if row else {"limits": [], "overrides": [], "held": {}}
        self.limits = {found["name"]: decode_limit(found) for found in document["limits"]}
        self._scopes = None
        self.overrides = {}
        for found in document["overrides"]:
            kind = decode_kind(found.pop("kind"))
            self.overrides[found["limit"], found["group"]] = Override(kind=kind, **found)
        self.held_limits = {name: (until, reason) for name, (until, reason) in document["held"].items()}
        self._plan_expiry()
        self.forget_meters()

    def write_rules(self) -> None:
        """Write them as one document: they are few, and change together."""
        overrides = [
            {**msgspec.structs.asdict(found), "kind": encode_kind(found.kind)} for found in self.overrides.values()
        ]
        limits = [encode_limit(limit) for limit in self.limits.values()]
        document = {"limits": limits, "overrides": overrides, "held": self.held_limits}
        self.state.db.execute(SPACE["save_rules"], (self.state.space, msgspec.json.encode(document).decode()))
        self.rules_changed = False

    # what changes rules

    def declare(self, limits: Any) -> tuple[list[Changed], bool]:
        before = dict(self.limits)
        changed, widened = super().declare(limits)
        self.rules_changed |= bool(changed) or widened or before != self.limits
        return changed, widened

    def drop(self, name: str) -> bool:
        for meter in self.meters_of(name):
            meter.gone = True  # type: ignore[attr-defined]
        dropped = super().drop(name)
        if dropped:
            self.rules_changed = True
            self.state.db.execute(SQL["drop_all_spent"], (self.state.space, name))
            self.state.db.execute(SQL["drop_all"], (self.state.space, name))
        return dropped

    def override(self, override: Override) -> None:
        super().override(override)
        self.rules_changed = True

    def lift(self, name: str, group: str | None) -> bool:
        lifted = super().lift(name, group)
        self.rules_changed |= lifted
        return lifted

    def hold_all(self, name: str, until: Micros, reason: str | None) -> None:
        super().hold_all(name, until, reason)
        self.rules_changed = True

    def release_all(self, name: str) -> None:
        super().release_all(name)
        self.rules_changed = True

    # meters

    def meter(self, name: str, group: str | None) -> LaneMeter:
        key = (name, group)
        meter: Any = self.meters.get(key)
        if meter is not None and meter.checked == self.epoch:
            return meter  # type: ignore[no-any-return]
        row = self.state.db.execute(SQL["meter"], (self.state.space, name, group or "")).fetchone()
        if row is None:
            if meter is None or meter.revision:
                meter = self.new_meter(key)
        elif meter is None or (row[0], row[1]) != (meter.number, meter.revision):
            if meter is None or kind_text(meter.kind) != row[3]:
                meter = SqliteMeter(self.state, key, kind_from(row[3]), row[0])
            meter.refresh(row)
        self.meters[key] = meter
        self.by_limit.setdefault(name, {})[key] = None
        meter.checked = self.epoch
        # An operator's numbers may have run out since the row was written.
        meter.change(self.kind(name, group), self.beneath(name, group))
        return meter  # type: ignore[no-any-return]

    def known(self, key: Key) -> LaneMeter | None:
        meter: Any = self.meters.get(key)
        return meter if meter is not None and meter.checked == self.epoch else None

    def new_meter(self, key: Key) -> LaneMeter:
        meter = SqliteMeter(self.state, key, self.kind(*key), self.state.next_id())
        meter.change(meter.kind, self.beneath(*key))
        until, reason = self.held_limits.get(key[0], (0, None))
        if until:
            meter.hold_until, meter.hold_reason = until, reason
        return meter

    def by_number(self, number: int) -> LaneMeter | None:
        """The meter that a lease is charged to; None when its limit was dropped since."""
        known = self._numbered.get(number)
        if known is not None and known.checked == self.epoch:
            return None if known.gone else known
        row = self.state.db.execute(SQL["key"], (number,)).fetchone()
        if row is None or row[0] not in self.limits:
            return None
        meter: SqliteMeter = self.meter(row[0], row[1] or None)  # type: ignore[assignment]
        if meter.number != number:
            return None
        self._numbered[number] = meter
        return meter

    def meters_of(self, name: str) -> list[LaneMeter]:
        rows = self.state.db.execute(SQL["keys"], (self.state.space, name)).fetchall()
        keys = dict.fromkeys([(found, group or None) for found, group in rows])
        keys |= dict.fromkeys(key for key in self.by_limit.get(name, ()) if key in self.meters)
        return [self.meter(*key) for key in keys]

    def forget_idle(self, now: Micros) -> int:
        """Drop meters of groups that a new one could replace."""
        rows = self.state.db.execute(SQL["idle"], (self.state.space, now, 1000)).fetchall()
        forgotten = 0
        for number, name, group in rows:
            meter: Any = self.meter(name, group)
            if meter.forgettable(now) and not meter.lanes:
                meter.gone = True
                self.state.db.execute(SQL["drop_spent"], (number,))
                self.state.db.execute(SQL["drop"], (number,))
                self.meters.pop((name, group), None)
                self.by_limit.get(name, {}).pop((name, group), None)
                forgotten += 1
        return forgotten
