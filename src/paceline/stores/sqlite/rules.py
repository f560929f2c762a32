"""Limits, operators' overrides and holds of whole limits: one document, because they are few and change together."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from paceline.clock import Micros
from paceline.limits import Limit
from paceline.limits.rule import Key, decode_kind, decode_limit, encode_kind, encode_limit
from paceline.limits.scopes import Scopes
from paceline.stores.interface import Override
from paceline.stores.sqlite.connect import Database
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.registry import Registry

SQL = statements("space")


@dataclass
class Rules:
    """What the file says, as long as its number of rules says so."""

    limits: dict[str, Limit]
    overrides: dict[Key, Override]
    held: dict[str, tuple[Micros, str | None]]
    scopes: Scopes

    def give(self, registry: Registry) -> None:
        """Let a registry go by these rules."""
        registry.take_rules(self.limits, self.overrides, self.held, self.scopes)

    def differ_from(self, registry: Registry) -> bool:
        """True when a step has changed them."""
        theirs = (registry.limits, registry.overrides, registry.held_limits)
        return theirs != (self.limits, self.overrides, self.held)


def rules_of(registry: Registry) -> Rules:
    """The rules that a registry goes by."""
    return Rules(dict(registry.limits), dict(registry.overrides), dict(registry.held_limits), registry.scopes)


def no_rules() -> Rules:
    """What a new file says."""
    return Rules({}, {}, {}, Scopes([]))


def read(db: Database, space: int) -> Rules:
    """What the file says."""
    row = db.execute(SQL["rules"], (space,)).fetchone()
    if row is None:
        return no_rules()
    document = msgspec.json.decode(row[0])
    overrides = {}
    for found in document["overrides"]:
        kind = decode_kind(found.pop("kind"))
        overrides[found["limit"], found["group"]] = Override(kind=kind, **found)
    limits = {found["name"]: decode_limit(found) for found in document["limits"]}
    held = {name: (until, reason) for name, (until, reason) in document["held"].items()}
    return Rules(limits, overrides, held, Scopes(limits.values()))


def write(db: Database, space: int, rules: Rules) -> None:
    """Write them."""
    overrides = [
        {**msgspec.structs.asdict(found), "kind": encode_kind(found.kind)} for found in rules.overrides.values()
    ]
    limits = [encode_limit(limit) for limit in rules.limits.values()]
    document = {"limits": limits, "overrides": overrides, "held": rules.held}
    db.execute(SQL["save_rules"], (space, msgspec.json.encode(document).decode()))
