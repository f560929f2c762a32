"""Writing what a transaction changed: each table once, many rows at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from paceline.job import ACTIVE, COMPLETED, FINISHED
from paceline.stores.sqlite.rows import begin_columns, complete_columns, is_begin, job_columns, life_columns
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.rows import ON_TIME

if TYPE_CHECKING:
    from paceline.stores.sqlite.state import SqliteState

JOBS = statements("jobs")
LANES = statements("lanes")
LIMITS = statements("limits")
SPACE = statements("space")


def everything(state: SqliteState) -> None:
    """All of it, and the number that tells others that something changed."""
    places(state)
    dirty, db = state.dirty, state.db
    if dirty.starts:
        rows = [
            (queue, fence, start.at, start.job_id, start.task, start.group, _cost(start.cost))
            for queue, fence, start in dirty.starts
        ]
        db.executemany(JOBS["log_start"], rows)
        dirty.starts.clear()
    _meters(state)
    if state.registry.rules_changed:
        state.registry.write_rules()
        state.rules_version += 1
    for worker, (claim, taken) in dirty.claimed.items():
        db.execute(SPACE["save_claimed"], (state.space, worker, claim, json.dumps(taken)))
    dirty.claimed.clear()
    _space(state)


def places(state: SqliteState) -> None:
    """Jobs, and where they are."""
    lives(state)
    waits(state)
    lanes(state)
    _groups(state)
    _classes(state)
    _lines(state)
    _unique(state)


def jobs(state: SqliteState) -> None:
    """Jobs that are new or gone."""
    dirty, db = state.dirty, state.db
    if dirty.removed:
        gone = [(number,) for number in dirty.removed]
        db.executemany(JOBS["delete_job"], gone)
        db.executemany(JOBS["delete_life"], gone)
        dirty.removed.clear()
    if dirty.new:
        db.executemany(JOBS["insert"], [job_columns(state, row) for row in dirty.new])
        dirty.new.clear()


def lives(state: SqliteState) -> None:
    """What happened to jobs, and permits."""
    jobs(state)
    dirty, db = state.dirty, state.db
    if dirty.rows:
        _lives(state)
    if dirty.permits:
        for permit_id, permit in dirty.permits.items():
            if permit is None:
                db.execute(JOBS["drop_permit"], (state.space, permit_id))
            else:
                held = (state.keys_text(permit.keys), permit.started_at, permit.lease_until, permit.gate)
                db.execute(JOBS["save_permit"], (state.space, permit_id, *held))
        dirty.permits.clear()


def _lives(state: SqliteState) -> None:
    """First starts and completions are most of what happens: their statements are short."""
    begun, completed, others = [], [], []
    for row in state.dirty.rows:
        if row.state is COMPLETED and row.saved is ACTIVE and not row.cancel_asked and row.gate == ON_TIME:
            completed.append(complete_columns(row))
        elif is_begin(row):
            begun.append(begin_columns(state, row))
        else:
            others.append(life_columns(state, row))
        row.saved = row.state
        if row.state in FINISHED:
            state.let_go(row)
    for name, rows in (("begin_life", begun), ("complete_life", completed), ("save_life", others)):
        if rows:
            state.db.executemany(JOBS[name], rows)
    state.dirty.rows.clear()


def waits(state: SqliteState) -> None:
    """Which jobs wait in which lane, and which are delayed."""
    dirty = state.dirty
    _places(state, dirty.waits, "wait")
    _places(state, dirty.delayed, "delayed")


def _places(state: SqliteState, changed: dict[tuple[int, int, int], int | None], table: str) -> None:
    if not changed:
        return
    left = [place for place, number in changed.items() if number is None]
    taken = [(*place, number) for place, number in changed.items() if number is not None]
    if left:
        state.db.executemany(LANES[f"drop_{table}"], left)
    if taken:
        state.db.executemany(LANES[f"save_{table}"], taken)
    changed.clear()


def lanes(state: SqliteState) -> None:
    """Where lanes are filed."""
    dirty = state.dirty
    if dirty.dropped_lanes:
        state.db.executemany(LANES["drop_lane"], [(number,) for number in dirty.dropped_lanes])
        dirty.dropped_lanes.clear()
    if dirty.lanes:
        alive = [lane for lane in dirty.lanes if lane.number >= 0]
        state.db.executemany(LANES["save_lane"], [lane.row() for lane in alive])
        for lane in dirty.lanes:
            lane.marked = False
        for lane in alive:
            lane.stored = True
        dirty.lanes.clear()


def _groups(state: SqliteState) -> None:
    dirty = state.dirty
    if dirty.dropped_groups:
        state.db.executemany(LANES["drop_group"], [(number,) for number in dirty.dropped_groups])
        dirty.dropped_groups.clear()
    if dirty.groups:
        alive = [group for group in dirty.groups if group.number >= 0]
        state.db.executemany(LANES["save_group"], [group.row() for group in alive])
        for group in dirty.groups:
            group.marked = False
        for group in alive:
            group.stored = True
        dirty.groups.clear()


def _classes(state: SqliteState) -> None:
    dirty = state.dirty
    dropped = set(dirty.dropped_classes)
    if dropped:
        state.db.executemany(LANES["drop_class"], [(number,) for number in dropped])
        dirty.dropped_classes.clear()
    for cls in dirty.classes:
        cls.marked = False
        if cls.number in dropped:
            continue
        tasks = json.dumps(sorted(cls.tasks))
        state.db.execute(LANES["save_class"], (cls.number, cls.line.number, tasks))
    dirty.classes.clear()


def _lines(state: SqliteState) -> None:
    lines: Any = dict.values(state.lines)
    for line in lines:
        numbers = line.numbers()
        if numbers != line.written:
            state.db.execute(LANES["save_queue"], line.row())
            line.written = numbers
        if line.settings_changed:
            state.db.execute(LANES["save_settings"], (line.settings(), line.number))
            line.settings_changed = False


def _unique(state: SqliteState) -> None:
    for (queue, key), number in state.dirty.unique.items():
        if number is None:
            state.db.execute(JOBS["drop_unique"], (queue, key))
        else:
            state.db.execute(JOBS["save_unique"], (queue, key, number))
    state.dirty.unique.clear()


def _meters(state: SqliteState) -> None:
    alive = [meter for meter in state.dirty.meters if not meter.gone]
    state.dirty.meters.clear()
    if not alive:
        return
    whole = [meter for meter in alive if meter.whole]
    counted = [meter for meter in alive if not meter.whole]
    if counted:
        state.db.executemany(LIMITS["save_counted"], [meter.counted() for meter in counted])
    if whole:
        state.db.executemany(LIMITS["save"], [meter.row() for meter in whole])
    spent: list[tuple[int, int, int, int]] = []
    folded: list[tuple[int, int, int]] = []
    for meter in alive:
        meter.write_starts(spent, folded)
        meter.changed = False
    if spent:
        state.db.executemany(LIMITS["save_spent"], spent)
    if folded:
        state.db.executemany(LIMITS["fold_spent"], folded)


def _space(state: SqliteState) -> None:
    state.version += 1
    if state.sleepers.any():
        state.news_number += 1
    permits = json.dumps(sorted(state.waiting_permits))
    state.waiting_permits.changed = False
    numbers = (state.version, state.rules_version, state.ears_version, state.news_number)
    counted = (state._latest, state.orders, state.fences, permits, state.space)
    state.db.execute(SPACE["save"], (*numbers, *counted))
    if state.ids != state._ids_before:
        state.db.execute(SPACE["save_numbers"], (state.ids,))
        state._ids_before = state.ids


def _cost(cost: Any) -> Any:
    return cost if type(cost) is int else json.dumps(cost)
