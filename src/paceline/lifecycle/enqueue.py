"""Step 1: a call and its options become a job in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.job import Job, NewJob
from paceline.lifecycle.actions import StoreActions
from paceline.lifecycle.declare import Declarations


async def enqueue(
    declarations: Declarations, jobs: Sequence[NewJob], *, result_type: Any = None, within: object = None
) -> list[Job[Any]]:
    """Store the jobs, all or none, and give their snapshots."""
    store = await declarations.ready(within)
    for job in jobs:
        if type(job.cost) is dict and not job.cost.keys() <= declarations.costed:
            await declarations.warn_of_costs(job.cost, within)
    inserted = await store.insert(jobs, within)
    actions = StoreActions(declarations)
    return [Job(added.job, actions, result_type) for added in inserted]
