"""What a worker that takes a dead one's place must have been told besides the snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from controller.balancing.locality import Place
from controller.model.service import Algorithm, Locality
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from tests.component.rig import Backend, Rig, RigPolicy
from tests.component.test_workers import Pod, reached

ZONES = ("here", "there")


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return RigPolicy()


class Spread(Pod):
    """A backend in each of two zones."""

    async def apply(self, listed: list[Backend] | None = None, **fields: Any) -> None:
        endpoints = tuple(
            replace(Rig.endpoint(self, backend), zone=zone, node=f"{zone}-1")  # type: ignore[arg-type]  # no state
            for backend, zone in zip(self.backends, ZONES, strict=True)
        )
        backend = SnapshotBackend(name="all", weight=1, weight_per="Endpoint", endpoints=endpoints)
        port = SnapshotPort(name="http", port=80, listen=0, backends=(backend,))
        await self.fleet.apply(Snapshot(namespace="store", name="shop", ports=(port,), **fields))


@pytest.fixture
async def pod() -> AsyncIterator[Spread]:
    pod = Spread()
    yield pod
    await pod.close()


@pytest.mark.parametrize("prefer", ["Zone", "Node"])
async def test_a_replacement_worker_keeps_to_the_place_that_the_proxy_was_told_of(prefer: Any, pod: Spread) -> None:
    await pod.open(count=2, algorithm=Algorithm(type="RoundRobin"), locality=Locality(prefer=prefer))
    near, far = pod.backends
    pod.fleet.upstreams.place(Place(zone="here", node="here-1"))

    for restarts, worker in enumerate(tuple(pod.fleet.workers.values()), 1):
        worker.kill()
        await reached(lambda restarts=restarts: pod.fleet.telemetry.worker_restarts == restarts)
        await pod.serving()
    asked = [await pod.ask() for _ in range(40)]

    assert asked == [200] * 40
    assert (len(near.connections) > 0, len(far.connections)) == (True, 0)
