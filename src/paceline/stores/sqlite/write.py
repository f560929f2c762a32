"""Writing what a step changed: everything at hand is compared with what the file has, and each table written once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.job import DELAYED, WAITING
from paceline.stores.sqlite import rules
from paceline.stores.sqlite.rows import (
    QUEUE,
    Place,
    Stored,
    complete_columns,
    is_begin,
    is_completion,
    job_columns,
    life_columns,
    life_of,
)
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.lanes import Group, Lane, LaneClass
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.rows import Row

if TYPE_CHECKING:
    from paceline.stores.sqlite.unit import Unit

JOBS = statements("jobs")
LANES = statements("lanes")
LIMITS = statements("limits")
SPACE = statements("space")


def write(unit: Unit) -> bool:
    """Write what differs; True when something did."""
    # Each has numbers that the next ones refer to.
    found = [_rules(unit), _queues(unit), unit.meters.write(unit.next_id), _jobs(unit)]
    found += [_unique(unit), _starts(unit), _permits(unit), _workers(unit)]
    return any(found)


def _many(unit: Unit, statements: dict[str, str], **rows: list[Any]) -> bool:
    """Each statement once, for all its rows."""
    for name, values in rows.items():
        if values:
            unit.db.executemany(statements[name], values)
    return any(rows.values())


def _rules(unit: Unit) -> bool:
    registry = unit.state.registry
    if not unit.rules.differ_from(registry):
        return False
    for name in unit.rules.limits:
        if name not in registry.limits:
            unit.db.execute(LIMITS["drop_all_spent"], (unit.space, name))
            unit.db.execute(LIMITS["drop_all"], (unit.space, name))
    unit.rules = rules.rules_of(registry)
    unit.rules_version += 1
    rules.write(unit.db, unit.space, unit.rules)
    return True


# queues, classes, groups, lanes


def _queues(unit: Unit) -> bool:
    state, numbers, saved = unit.state, unit.numbers, unit.saved
    changed = False
    for queue in [queue for queue in numbers if isinstance(queue, QueueState)]:
        if state.queues.get(queue.name) is not queue:
            _drop_queue(unit, queue)
            changed = True
    for queue in state.queues.values():
        if queue not in numbers:
            numbers[queue] = unit.next_id()
            unit.db.execute(LANES["create_queue"], (numbers[queue], unit.space, queue.name))
            saved[queue] = ()
        changed |= _classes(unit, queue)
        row = queue_row(unit, queue)
        if saved[queue] != row:
            changed = True
            if saved[queue][:1] != row[:1]:
                unit.db.execute(LANES["save_queue"], _queue_columns(unit, queue))
            if saved[queue][1:] != row[1:]:
                unit.db.execute(LANES["save_settings"], (_settings(queue), numbers[queue]))
            saved[queue] = row
    return _groups(unit) or changed


def queue_row(unit: Unit, queue: QueueState) -> tuple[Any, ...]:
    """A queue as it is written: what changes with nearly every start, and its settings."""
    classes = tuple((unit.numbers[cls], cls.waiting) for cls in queue.classes.values())
    tasksets = tuple(queue.tasksets.items())
    settings = (queue.paused, frozenset(queue.paused_tasks), frozenset(queue.paused_groups), tasksets)
    return (queue.virtual_time, queue.filings, tuple(queue.counts.values()), classes), settings


def class_row(cls: LaneClass) -> tuple[Any, ...]:
    return tuple(sorted(cls.tasks))


def group_row(group: Group) -> tuple[Any, ...]:
    return (*group.ticket, group.waiting, group.size)


def lane_row(lane: Lane) -> tuple[Any, ...]:
    return (lane.state.value, *lane.group.ticket, lane.until, lane.waiting)


def _drop_queue(unit: Unit, queue: QueueState) -> None:
    """A queue is gone, and everything that was filed in it; its jobs are removed one by one."""
    number = unit.numbers.pop(queue)
    del unit.saved[queue]
    for cls in [cls for cls, owner in unit.queue_of.items() if owner is queue and isinstance(cls, LaneClass)]:
        unit.db.execute(LANES["drop_lanes"], (unit.numbers[cls],))
        unit.db.execute(LANES["drop_class"], (unit.numbers[cls],))
        del unit.classes[unit.numbers.pop(cls)], unit.saved[cls], unit.queue_of[cls]
    for group in [group for group, owner in unit.queue_of.items() if owner is queue and isinstance(group, Group)]:
        del unit.groups[unit.numbers.pop(group)], unit.saved[group], unit.queue_of[group]
        for lane in [lane for lane in unit.numbers if isinstance(lane, Lane) and lane.group is group]:
            del unit.numbers[lane], unit.saved[lane]
    unit.db.execute(LANES["drop_groups"], (number,))
    unit.db.execute(JOBS["drop_starts"], (number,))
    unit.db.execute(LANES["drop_queue"], (number,))


def _classes(unit: Unit, queue: QueueState) -> bool:
    current = {cls: None for cls in queue.classes.values()}
    gone = [
        cls for cls in unit.saved if isinstance(cls, LaneClass) and unit.queue_of[cls] is queue and cls not in current
    ]
    for cls in gone:
        del unit.saved[cls]
    changed: list[tuple[int, int, str]] = []
    for cls in current:
        if cls not in unit.numbers:
            number = unit.numbers[cls] = unit.next_id()
            unit.classes[number], unit.queue_of[cls] = cls, queue
            cls.source = unit.lanes
        row = class_row(cls)
        if unit.saved.get(cls) != row:
            unit.saved[cls] = row
            changed.append((unit.numbers[cls], unit.numbers[queue], json.dumps(row)))
    return _many(unit, LANES, drop_class=[(unit.numbers[cls],) for cls in gone], save_class=changed)


def _queue_columns(unit: Unit, queue: QueueState) -> tuple[Any, ...]:
    states = {state: number for state, number in queue.counts.items() if number}
    classes = {unit.numbers[cls]: cls.waiting for cls in queue.classes.values()}
    numbers = json.dumps({"states": states, "classes": classes})
    return queue.virtual_time, queue.filings, numbers, unit.numbers[queue]


def _settings(queue: QueueState) -> str:
    tasksets = [[sorted(tasks), number] for tasks, number in queue.tasksets.items()]
    names = {"tasks": sorted(queue.paused_tasks), "groups": sorted(queue.paused_groups)}
    return json.dumps({"paused": queue.paused, **names, "tasksets": tasksets})


def _groups(unit: Unit) -> bool:
    numbers, saved = unit.numbers, unit.saved
    new_groups, groups, new_lanes, lanes, gone_lanes = [], [], [], [], []
    gone = [
        (number, group)
        for number, group in unit.groups.items()
        if unit.queue_of[group].groups.get(group.id) is not group
    ]
    for _, group in gone:
        del unit.groups[numbers.pop(group)], saved[group], unit.queue_of[group]
    for lane in [lane for lane in saved if isinstance(lane, Lane) and lane.group.lanes.get(lane.cls) is not lane]:
        gone_lanes.append((numbers.pop(lane),))
        del saved[lane]
    for queue in unit.state.queues.values():
        for group in queue.groups.values():
            row = group_row(group)
            if saved.get(group) != row:
                if group in numbers:
                    groups.append((*row, numbers[group]))
                else:
                    number = unit.next_id()
                    new_groups.append((number, numbers[queue], group.id or "", *row))
                    unit.took_group(queue, group, number)
                saved[group] = row
            for lane in group.lanes.values():
                row = lane_row(lane)
                if saved.get(lane) != row:
                    if lane in numbers:
                        lanes.append((*row, numbers[lane]))
                    else:
                        number = numbers[lane] = unit.next_id()
                        new_lanes.append((number, numbers[lane.cls], numbers[group], *row))
                    saved[lane] = row
    dropped = [(number,) for number, _ in gone]
    removed = _many(unit, LANES, drop_lane=gone_lanes, drop_group=dropped)
    return removed | _many(unit, LANES, add_group=new_groups, save_group=groups, add_lane=new_lanes, save_lane=lanes)


# jobs


def _jobs(unit: Unit) -> bool:
    state, stored_jobs = unit.state, unit.jobs
    removed = [(n, row) for n, row in unit.by_n.items() if state.rows.get(row.job.id) is not row]
    left: dict[str, list[tuple[int, int, int]]] = {"wait": [], "delayed": []}
    taken: dict[str, list[tuple[int, int, int, int]]] = {"wait": [], "delayed": []}
    for n, row in removed:
        stored = stored_jobs.pop(row)
        del unit.by_n[n]
        if stored.place is not None:
            left[stored.place[0]].append(stored.place[1:])
    new: list[tuple[Any, ...]] = []
    begun, completed, others = [], [], []
    for row in state.rows.values():
        if row not in stored_jobs:
            n = (unit.numbers[state.queues[row.job.queue]] << QUEUE) + abs(row.order)
            stored_jobs[row] = Stored(n, row.due_at, None, life_of(row), None)
            unit.by_n[n] = row
            new.append(job_columns(unit.space, n, row))
        stored = stored_jobs[row]
        life = life_of(row)
        if stored.life != life:
            if is_completion(row, stored):
                completed.append(complete_columns(row, stored.n))
            else:
                keys = unit.meters.keys_text(row.keys) if row.keys else None
                if is_begin(row, stored):
                    run = (row.started_at, row.fence, row.worker, row.lease_until, keys)
                    begun.append((stored.n, unit.space, *run))
                else:
                    others.append(life_columns(unit.space, row, stored, keys))
            stored.life, stored.state = life, row.state
        place = _place_of(unit, row)
        if stored.place != place:
            if stored.place is not None:
                left[stored.place[0]].append(stored.place[1:])
            if place is not None:
                taken[place[0]].append((*place[1:], stored.n))
            stored.place = place
    gone = [(n,) for n, _ in removed]
    found = _many(unit, JOBS, delete_job=gone, delete_life=gone, insert=new)
    found |= _many(unit, JOBS, begin_life=begun, complete_life=completed, save_life=others)
    found |= _many(unit, LANES, drop_wait=left["wait"], drop_delayed=left["delayed"])
    return found | _many(unit, LANES, save_wait=taken["wait"], save_delayed=taken["delayed"])


def _place_of(unit: Unit, row: Row) -> Place | None:
    if row.entry is None:
        return None
    if row.state is WAITING:
        return ("wait", unit.numbers[row.lane], row.job.priority, row.order)
    if row.state is DELAYED:
        return ("delayed", unit.numbers[unit.state.queues[row.job.queue]], row.due_at, row.order)
    return None


def _unique(unit: Unit) -> bool:
    taken, left = [], []
    for queue in unit.state.queues.values():
        for key, row in queue.unique.items():
            n = unit.jobs[row].n
            if unit.unique.get((queue, key)) != n:
                taken.append((unit.numbers[queue], key, n))
                unit.unique[queue, key] = n
    for (queue, key), found in list(unit.unique.items()):
        if found is not None and key not in queue.unique:
            left.append((found >> QUEUE, key))
            unit.unique[queue, key] = None
    return _many(unit, JOBS, drop_unique=left, save_unique=taken)


def _starts(unit: Unit) -> bool:
    logged, dropped = [], []
    for queue, fence in [place for place in unit.starts if place[1] not in place[0].starts]:
        dropped.append((unit.numbers[queue], fence))
        del unit.starts[queue, fence]
    for queue in unit.state.queues.values():
        for fence, start in queue.starts.items():
            if unit.starts.get((queue, fence)) is not start:
                cost = start.cost if isinstance(start.cost, int) else json.dumps(start.cost)
                logged.append((unit.numbers[queue], fence, start.at, start.job_id, start.task, start.group, cost))
                unit.starts[queue, fence] = start
    return _many(unit, JOBS, drop_start=dropped, log_start=logged)


# who holds, works and claims


def _permits(unit: Unit) -> bool:
    permits = unit.state.permits
    saved: list[tuple[Any, ...]] = []
    dropped: list[tuple[Any, ...]] = []
    for name in [*unit.permits, *(name for name in permits if name not in unit.permits)]:
        permit = permits.get(name)
        row = None
        if permit is not None:
            row = (unit.meters.keys_text(permit.keys), permit.started_at, permit.lease_until, permit.gate)
        if row != unit.permits.get(name):
            (dropped if row is None else saved).append((unit.space, name, *(row or ())))
            unit.permits[name] = row
    return _many(unit, JOBS, drop_permit=dropped, save_permit=saved)


def _workers(unit: Unit) -> bool:
    state = unit.state
    saved, dropped, claimed, forgotten = [], [], [], []
    for worker in {**unit.workers, **state.workers}:
        record = state.workers.get(worker)
        if record is None and unit.workers[worker] is not None:
            dropped.append((unit.space, worker))
        elif record is not None and unit.workers.get(worker) != record:
            saved.append((unit.space, worker, msgspec.json.encode(record).decode()))
        unit.workers[worker] = record
    for worker in {**unit.claims, **state.last_claims}:
        claim = state.last_claims.get(worker)
        if claim is None and unit.claims[worker] is not None:
            forgotten.append((unit.space, worker))
        elif claim is not None and unit.claims.get(worker) != claim:
            claimed.append((unit.space, worker, claim[0], json.dumps(claim[1])))
        unit.claims[worker] = claim
    return _many(unit, SPACE, save_worker=saved, drop_worker=dropped, save_claimed=claimed, drop_claimed=forgotten)
