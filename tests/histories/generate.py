"""Random histories. A seed decides which features a history has, so that each of them also occurs without the others:
a short way that is taken only where there are no limits, or one job, or one group, is met as often as the long one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from paceline.job import JobState, Move
from paceline.stores.interface import Outcome

from .pair import Pair
from .words import AROUND, GROUPS, KINDS, QUEUES, SCOPES, TASKS, Step, of_groups

LENGTH = 80
FEATURES = (
    "costs",
    "mapped costs",
    "delays",
    "priorities",
    "lifo",
    "unique",
    "sizes",
    "kept ids",
    "outcomes",
    "stale ends",
    "holds",
    "backoffs",
    "leases that end",
    "crews",
    "private limiters",
    "replays",
    "pauses",
    "moves",
    "sweeps",
    "changes",
    "overrides",
    "permits",
    "reopens",
    "gates",
)


class Generator:
    """The dice of one seed. It looks at the reference only, so that one seed is one history on every store."""

    def __init__(self, seed: int) -> None:
        dice = self.dice = random.Random(seed)
        share = dice.choice([0.0, 0.15, 0.4, 0.4, 0.7])
        self.features = {name for name in FEATURES if dice.random() < share}
        self.queues = QUEUES[: dice.choice([1, 1, 2, 3])]
        self.tasks = TASKS[: dice.choice([1, 2, 4])]
        self.groups: tuple[str | None, ...] = dice.choice([(None,), (None, "u"), ("u", "v"), GROUPS])
        self.most_jobs = dice.choice([1, 1, 3, 15])
        self.most_slots = dice.choice([1, 1, 4, 20])
        self.limits = dice.choice([0, 0, 1, 2, 5])
        self.eager = dice.random() < 0.3
        """Workers that complete every job soon: queues are nearly idle all the time."""
        self.leases = [12, 25] if "leases that end" in self.features else [1_000_000]
        self.made = self.claims = self.permits = 0
        self.last_permit: str | None = None
        self.last_ask: Step | None = None
        self.last_claim: Step | None = None

    def has(self, feature: str, chance: float = 0.5) -> bool:
        return feature in self.features and self.dice.random() < chance

    def begin(self) -> list[Step]:
        names = self.dice.sample(list(SCOPES), min(self.limits, len(SCOPES)))
        return [self.declare(names)] if names else []

    def step(self, pair: Pair) -> Step:
        """The next step of the history that the pair has been through so far."""
        weights: dict[Callable[[Pair], Step | None], float] = {
            self.insert: 6,
            self.claim: 8,
            self.finish: 6 if self.eager else 3,
            self.wait: 5,
            self.look: 3,
            self.extend: "leases that end" in self.features,
            self.pause: "pauses" in self.features,
            self.move: "moves" in self.features,
            self.sweep: "sweeps" in self.features,
            self.change: "changes" in self.features,
            self.override: "overrides" in self.features,
            self.hold: "holds" in self.features,
            self.permit: 3 * ("permits" in self.features),
            self.reopen: 0.3 * ("reopens" in self.features),
            self.gate: 4 * ("gates" in self.features),
        }
        while True:
            (kind,) = self.dice.choices(list(weights), list(weights.values()))
            step = kind(pair)
            if step is not None:
                return step

    # jobs

    def insert(self, pair: Pair) -> Step:
        return ["insert", [self.job(pair) for _ in range(self.dice.randint(1, self.most_jobs))]]

    def job(self, pair: Pair) -> dict[str, Any]:
        dice = self.dice
        spec: dict[str, Any] = {"queue": dice.choice(self.queues), "task": dice.choice(self.tasks)}
        group = dice.choice(self.groups)
        if group is not None:
            spec["group"] = group
        if self.has("kept ids", 0.1) and pair.ids:
            spec["id"] = dice.choice(pair.ids)
        else:
            spec["id"] = f"j{self.made}"
            self.made += 1
            if dice.random() < 0.5:
                spec["fresh"] = True
        if self.has("costs"):
            spec["cost"] = dice.choice([2, 3, 4, 10])
        elif self.has("mapped costs"):
            spec["cost"] = {dice.choice(list(SCOPES)): dice.choice([2, 3]), "all": dice.choice([1, 2])}
        if self.has("priorities"):
            spec["priority"] = dice.choice([-1, 1])
        if self.has("lifo", 0.3):
            spec["lifo"] = True
        if self.has("delays", 0.3):
            spec["delay"] = dice.choice([1, 5, 30])
        if self.has("sizes", 0.3) and group is not None:
            spec["group_max_size"] = dice.choice([1, 3, 6])
        if self.has("unique", 0.3):
            spec["unique"] = dice.choice(["one", "two"])
            spec["unique_ttl"] = dice.choice([None, 5, 20])
            spec["fresh"] = False
        if self.has("sweeps", 0.3):
            spec["keep"] = dice.choice([0, 50])
        return spec

    def claim(self, pair: Pair) -> Step:
        dice = self.dice
        if self.last_claim and self.has("replays", 0.1):
            return self.last_claim  # its answer was lost
        self.claims += 1
        queues = dice.sample(self.queues, dice.randint(1, len(self.queues)))
        lease = dice.choice(self.leases)
        slots = dice.randint(1, self.most_slots)
        spec: dict[str, Any] = {"queues": queues, "slots": slots, "worker": "w1", "lease": lease}
        spec["claim_id"] = f"c{self.claims}"
        if self.has("crews"):
            spec["worker"], spec["tasks"] = dice.choice([("w2", "ab"), ("w3", "c"), ("w4", "abcd")])
        if self.has("private limiters", 0.3):
            spec |= dice.choice([{"room": 3}, {"room": 1, "most": 2}, {"most": 2}])
        shared = [name for name in pair.declared if not of_groups(name)]
        if self.has("private limiters", 0.2) and shared:
            spec["also"] = [dice.choice(shared)]
        ends = self.ends(pair) if pair.fences and dice.random() < 0.5 else []
        self.last_claim = ["claim", spec, ends]
        return self.last_claim

    def ends(self, pair: Pair) -> list[dict[str, Any]]:
        running = list(pair.fences)[-40:]
        most = len(running) if self.eager else min(len(running), 4)
        return [self.end(pair, id) for id in self.dice.sample(running, self.dice.randint(1, most))]

    def end(self, pair: Pair, id: str) -> dict[str, Any]:
        dice = self.dice
        end: dict[str, Any] = {"id": id, "outcome": "completed"}
        if self.has("outcomes"):
            end["outcome"] = str(dice.choice(list(Outcome)))
            end |= dice.choice([{}, {"error": "bröken"}, {"after": 7}, {"when_open": True}])
        if self.has("stale ends", 0.2):
            end["stale"] = dice.choice([1, -1])
        if self.has("holds", 0.3) and pair.declared:
            end |= {"outcome": "returned", "holds": [self.a_hold(pair)]}
        return end

    def finish(self, pair: Pair) -> Step | None:
        return ["finish", self.ends(pair)] if pair.fences else None

    def gate(self, pair: Pair) -> Step | None:
        """Handlers that would begin late, or did."""
        dice = self.dice
        if self.last_ask and "permits" in self.features and dice.random() < 0.4:
            _, targets, permit, lease, *_ = self.last_ask
            if permit not in pair.granted:
                return None
            return (
                ["begun", [], [permit], dice.choice([0, 0, 3])]
                if dice.random() < 0.4
                else ["acquire_late", targets, permit, lease]
            )
        if not pair.fences:
            return None
        running = list(pair.fences)[-8:]
        ids = dice.sample(running, dice.randint(1, len(running)))
        return ["begun", ids, [], dice.choice([0, 0, 1, 4])] if dice.random() < 0.4 else ["decide_again", ids]

    def extend(self, pair: Pair) -> Step | None:
        ids = self.dice.sample(list(pair.fences)[-8:], min(2, len(pair.fences)))
        permits = [self.last_permit] if self.last_permit else []
        return ["extend", "w1", ids, permits, self.dice.choice([12, 25, 60])]

    def wait(self, pair: Pair) -> Step | None:
        """Mostly to the instant at which something opens or ends, and to the microseconds beside it."""
        dice, open_at = self.dice, pair.ask_again_at - pair.clock.at
        if 0 < open_at < 1000 and dice.random() < 0.5:
            return ["wait", max(open_at + dice.choice([-1, 0, 0, 1]), 0)]
        return ["wait", max(dice.choice(AROUND) + dice.choice([-1, 0, 0, 1]), 1)]

    # what operators do

    def pause(self, pair: Pair) -> Step:
        dice = self.dice
        what = dice.choice([(None, None), (dice.choice(self.tasks), None), (None, dice.choice(["u", "v"]))])
        return ["pause", dice.choice(self.queues), *what, dice.random() < 0.4]

    def move(self, pair: Pair) -> Step | None:
        if not pair.ids:
            return None
        return ["move", self.dice.sample(pair.ids[-10:], 1), str(self.dice.choice(list(Move)))]

    def sweep(self, pair: Pair) -> Step:
        dice, queue = self.dice, self.dice.choice(self.queues)
        steps: list[Step] = [["prune"], ["prune"], ["clean", queue, str(dice.choice(list(JobState))), 10]]
        steps += [["drain", queue], ["obliterate", queue, dice.random() < 0.5], ["move_all", queue, "failed", "retry"]]
        return dice.choice(steps)

    def reopen(self, pair: Pair) -> Step:
        return ["reopen"]

    # limits

    def declare(self, names: list[str]) -> Step:
        return ["declare", {name: self.dice.choice(list(KINDS)) for name in names}]

    def a_key(self, pair: Pair) -> tuple[str, str | None]:
        name = self.dice.choice(pair.declared)
        return name, self.dice.choice(["u", "v", "z"]) if of_groups(name) else None

    def change(self, pair: Pair) -> Step:
        if len(pair.declared) > 2 and self.dice.random() < 0.3:
            return ["drop", self.dice.choice(pair.declared)]
        return self.declare([self.dice.choice(list(SCOPES))])

    def override(self, pair: Pair) -> Step | None:
        if not pair.declared:
            return None
        name, group = self.a_key(pair)
        group = group if self.dice.random() < 0.5 else None
        if self.dice.random() < 0.4:
            return ["lift", name, group]
        return ["override", name, group, self.dice.choice(list(KINDS)), self.dice.choice([None, 15])]

    def a_hold(self, pair: Pair) -> dict[str, Any]:
        name, group = self.a_key(pair)
        hold: dict[str, Any] = {"limit": name, "group": group}
        if "backoffs" in self.features and self.dice.random() < 0.7:
            return hold | {"jitter": self.dice.choice([0, 0.5])}
        return hold | self.dice.choice([{"for_": 5}, {"for_": 20, "reason": "busy"}])

    def hold(self, pair: Pair) -> Step | None:
        if not pair.declared:
            return None
        steps: list[Step] = [["hold", self.a_hold(pair)]] * 2
        return self.dice.choice([*steps, ["release", *self.a_key(pair)], ["clear", *self.a_key(pair)]])

    def permit(self, pair: Pair) -> Step | None:
        if not pair.declared:
            return None
        if self.last_permit and self.dice.random() < 0.3:
            return ["give_back", self.last_permit]
        if self.last_ask and self.dice.random() < 0.3:
            return self.last_ask
        self.permits += 1
        self.last_permit = f"p{self.permits}"
        targets = [[*self.a_key(pair), self.dice.choice([1, 1, 2, 3])]]
        force, waits = self.dice.random() < 0.1, self.dice.random() < 0.5
        self.last_ask = ["acquire", targets, self.last_permit, 25, force, waits]
        return self.last_ask

    # reading

    def look(self, pair: Pair) -> Step:
        dice = self.dice
        steps: list[Step] = [["counts", dice.choice(self.queues)]]
        if pair.ids:
            steps += [["standing", dice.choice(pair.ids)]] * 2
            steps.append(["find", {"queue": dice.choice(self.queues), "task": dice.choice([None, "a"]), "limit": 5}])
        if pair.declared:
            steps += [["usage", *self.a_key(pair)]] * 2
        return dice.choice(steps)
