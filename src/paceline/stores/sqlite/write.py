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
from paceline.stores.steps.lanes import Group, Lane
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.rows import Row

if TYPE_CHECKING:
    from paceline.stores.sqlite.unit import Unit

JOBS = statements("jobs")
LANES = statements("lanes")
LIMITS = statements("limits")
SPACE = statements("space")


def write(unit: Unit, last: bool) -> bool:
    """Write what differs; True when something did. `last`: no step follows in this transaction."""
    # Each has numbers that the next ones refer to.
    found = [_rules(unit), _queues(unit), unit.meters.write(unit.next_id), _jobs(unit, last)]
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
    for queue in [queue for queue in unit.stored_classes if state.queues.get(queue.name) is not queue]:
        _drop_queue(unit, queue)
        changed = True
    for queue in state.queues.values():
        if queue not in numbers:
            numbers[queue] = unit.next_id()
            unit.db.execute(LANES["create_queue"], (numbers[queue], unit.space, queue.name))
            unit.stored_classes[queue] = []
            saved[queue] = ((), ())
        changed |= _classes(unit, queue)
        row = queue_row(queue)
        before = saved[queue]
        if before != row:
            changed = True
            if before[0] != row[0]:
                unit.db.execute(LANES["save_queue"], _queue_columns(unit, queue))
            if before[1] != row[1]:
                unit.db.execute(LANES["save_settings"], (_settings(queue), numbers[queue]))
            saved[queue] = row
    return _groups(unit) or changed


def queue_row(queue: QueueState) -> tuple[Any, ...]:
    """A queue as it is written: what changes with nearly every start, and its settings."""
    waiting = [cls.waiting for cls in queue.classes.values()]
    settings = (queue.paused, set(queue.paused_tasks), set(queue.paused_groups), len(queue.tasksets))
    return [queue.virtual_time, queue.filings, *queue.counts.values(), *waiting], settings


def _drop_queue(unit: Unit, queue: QueueState) -> None:
    """A queue is gone, and everything that was filed in it; its jobs are removed one by one."""
    number = unit.numbers.pop(queue)
    del unit.saved[queue]
    for cls in unit.stored_classes.pop(queue):
        unit.db.execute(LANES["drop_lanes"], (unit.numbers[cls],))
        unit.db.execute(LANES["drop_class"], (unit.numbers[cls],))
        del unit.classes[unit.numbers.pop(cls)], unit.saved[cls], unit.queue_of[cls]
    for group in [group for group in unit.groups.values() if unit.queue_of[group] is queue]:
        unit.forget_group(group)
    unit.db.execute(LANES["drop_groups"], (number,))
    unit.db.execute(JOBS["drop_starts"], (number,))
    unit.db.execute(LANES["drop_queue"], (number,))


def _classes(unit: Unit, queue: QueueState) -> bool:
    stored = unit.stored_classes[queue]
    current = dict.fromkeys(queue.classes.values())
    gone = [cls for cls in stored if cls not in current]
    changed: list[tuple[int, int, str]] = []
    for cls in current:
        if cls not in unit.numbers:
            number = unit.numbers[cls] = unit.next_id()
            unit.classes[number], unit.queue_of[cls] = cls, queue
            cls.source = unit.lanes
        if unit.saved.get(cls) != cls.tasks:
            unit.saved[cls] = set(cls.tasks)
            changed.append((unit.numbers[cls], unit.numbers[queue], json.dumps(sorted(cls.tasks))))
    if gone or changed:
        unit.stored_classes[queue] = list(current)
        return _many(unit, LANES, drop_class=[(unit.numbers[cls],) for cls in gone], save_class=changed)
    return False


def _queue_columns(unit: Unit, queue: QueueState) -> tuple[Any, ...]:
    states = {state: number for state, number in queue.counts.items() if number}
    classes = {unit.numbers[cls]: cls.waiting for cls in queue.classes.values()}
    numbers = json.dumps({"states": states, "classes": classes})
    return queue.virtual_time, queue.filings, numbers, unit.numbers[queue]


def _settings(queue: QueueState) -> str:
    tasksets = [[sorted(tasks), number] for tasks, number in queue.tasksets.items()]
    names = {"tasks": sorted(queue.paused_tasks), "groups": sorted(queue.paused_groups)}
    return json.dumps({"paused": queue.paused, **names, "tasksets": tasksets})


def group_row(group: Group) -> tuple[int, ...]:
    return (*group.ticket, group.waiting, group.size)


def lane_row(lane: Lane) -> tuple[Any, ...]:
    return (lane.state.value, *lane.group.ticket, lane.until, lane.waiting)


def _groups(unit: Unit) -> bool:
    numbers, saved = unit.numbers, unit.saved
    gone: list[tuple[int]] = []
    new: list[tuple[Any, ...]] = []
    changed: list[tuple[Any, ...]] = []
    lanes: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for number, group in list(unit.groups.items()):
        _lanes_gone(unit, group, lanes[0])
        if unit.queue_of[group].groups.get(group.id) is not group:
            gone.append((number,))
            unit.forget_group(group)
    for queue in unit.state.queues.values():
        for group in queue.groups.values():
            row = group_row(group)
            if saved.get(group) != row:
                if group in numbers:
                    changed.append((*row, numbers[group]))
                else:
                    number = unit.next_id()
                    new.append((number, numbers[queue], group.id or "", *row))
                    unit.took_group(queue, group, number)
                saved[group] = row
            _lanes_of(unit, group, *lanes[1:])
    if not (gone or new or changed or any(lanes)):
        return False
    _many(unit, LANES, drop_lane=lanes[0], drop_group=gone, add_group=new, save_group=changed)
    return _many(unit, LANES, add_lane=lanes[1], save_lane=lanes[2]) or True


def _lanes_gone(unit: Unit, group: Group, gone: list[Any]) -> None:
    known = unit.stored_lanes[group]
    for lane in [lane for lane in known if group.lanes.get(lane.cls) is not lane]:
        gone.append((unit.numbers.pop(lane),))
        del unit.saved[lane]
        known.remove(lane)


def _lanes_of(unit: Unit, group: Group, new: list[Any], changed: list[Any]) -> None:
    for lane in group.lanes.values():
        row = lane_row(lane)
        if unit.saved.get(lane) != row:
            if lane in unit.numbers:
                changed.append((*row, unit.numbers[lane]))
                unit.saved[lane] = row
            else:
                number = unit.next_id()
                new.append((number, unit.numbers[lane.cls], unit.numbers[group], *row))
                unit.took_lane(lane, number)


# jobs


def _jobs(unit: Unit, last: bool) -> bool:
    state, stored_jobs, numbers = unit.state, unit.jobs, unit.numbers
    left: tuple[list[tuple[int, int, int]], ...] = ([], [])
    taken: tuple[list[tuple[int, int, int, int]], ...] = ([], [])
    removed = [(n, row) for n, row in unit.by_n.items() if state.rows.get(row.job.id) is not row]
    for n, row in removed:
        place = stored_jobs.pop(row).place
        del unit.by_n[n]
        if place is not None:
            left[place[0]].append(place[1:])
    new: list[tuple[Any, ...]] = []
    begun, completed, others = [], [], []
    for row in state.rows.values():
        stored = stored_jobs.get(row)
        if stored is None:
            n = (numbers[state.queues[row.job.queue]] << QUEUE) + abs(row.order)
            stored = stored_jobs[row] = Stored(n, row.due_at)
            unit.by_n[n] = row
            new.append(job_columns(unit.space, n, row))
        if stored.differs(row):
            if is_completion(row, stored):
                completed.append(complete_columns(row, stored.n))
            else:
                keys = unit.meters.keys_text(row.keys) if row.keys else None
                if is_begin(row, stored):
                    run = (row.started_at, row.fence, row.worker, row.lease_until, keys)
                    begun.append((stored.n, unit.space, *run))
                else:
                    others.append(life_columns(unit.space, row, stored, keys))
            stored.state = row.state
            if not last:
                stored.life = life_of(row)
        place = _place_of(unit, row) if row.entry is not None else None
        if stored.place != place:
            if stored.place is not None:
                left[stored.place[0]].append(stored.place[1:])
            if place is not None:
                taken[place[0]].append((*place[1:], stored.n))
            stored.place = place
    gone = [(n,) for n, _ in removed]
    found = _many(unit, JOBS, delete_job=gone, delete_life=gone, insert=new, begin_life=begun, complete_life=completed)
    found |= _many(unit, JOBS, save_life=others)
    found |= _many(unit, LANES, drop_wait=left[True], drop_delayed=left[False])
    return found | _many(unit, LANES, save_wait=taken[True], save_delayed=taken[False])


def _place_of(unit: Unit, row: Row) -> Place | None:
    if row.state is WAITING:
        return (True, unit.numbers[row.lane], row.job.priority, row.order)
    if row.state is DELAYED:
        return (False, unit.numbers[unit.state.queues[row.job.queue]], row.due_at, row.order)
    return None


def _unique(unit: Unit) -> bool:
    if not unit.unique and not any(queue.unique for queue in unit.state.queues.values()):
        return False
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
    if not permits and not unit.permits:
        return False
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
    if not (unit.workers or unit.claims or state.workers or state.last_claims):
        return False
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
            claimed.append((unit.space, worker, claim[0], msgspec.json.encode(claim[1]).decode()))
        unit.claims[worker] = claim
    return _many(unit, SPACE, save_worker=saved, drop_worker=dropped, save_claimed=claimed, drop_claimed=forgotten)
