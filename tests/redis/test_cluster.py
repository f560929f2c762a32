"""A cluster of three nodes: a namespace lives in one slot, and its node is found from any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline import Concurrency, Job, Limit, Queue, Rate, Worker
from paceline.stores import open_store

from ..servers.redis import RedisCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    cluster = RedisCluster()
    cluster.start()
    yield cluster
    cluster.remove()


@pytest.mark.parametrize("namespace", ["one", "two", "three", "four"])
@pytest.mark.parametrize("node", [0, 1, 2])
async def test_every_node_leads_to_every_namespace(cluster, node, namespace):
    store = open_store(cluster.nodes[node].url, namespace=f"{namespace} {node}")
    limits = [Limit("all", Rate(100, per="1s") & Concurrency(5)), Limit("tenant", Concurrency(1), by="group")]
    queue = Queue("line", store=store, limits=limits)
    await queue.add_many([("work", None, {"group": f"g{number % 3}"}) for number in range(12)])
    done: list[str] = []

    async def handler(job: Job[None]) -> None:
        done.append(job.id)

    await Worker("line", handler, store=store, concurrency=4).run(until_empty=True)

    assert (len(done), (await queue.counts())["completed"]) == (12, 12)
    await store.close()
