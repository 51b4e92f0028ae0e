"""No counter of /metrics falls, or is gone, whatever goes: an endpoint, a backend, a port, an object, a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller.model.endpoints import Endpoint
from controller.model.service import Health, Limits, PassiveHealth, Retries
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.fleet import Fleet
from controller.proxy.plane import DataPlane
from controller.telemetry import Telemetry
from tests.component.rig import OK, SETTINGS, Backend, Rig, RigPolicy, Step, Wire, fin, recv_head, send, serve
from tests.component.test_proxy_command import free_port
from tests.component.test_workers import reached

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
COUNTED = {
    "steelyard_config_applied_total",
    "steelyard_connections_refused_total",
    "steelyard_ejections_total",
    "steelyard_pool_connects_total",
    "steelyard_requests_total",
    "steelyard_retries_total",
    "steelyard_tcp_bytes_total",
}


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return RigPolicy()


class Watch:
    """Each look compares every series of every counter with the look before."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._registry = telemetry.registry()
        self._seen: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def look(self) -> None:
        now = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(generate_latest(self._registry).decode())
            if family.type in ("counter", "histogram")
            for sample in family.samples
        }
        fallen = {key: (before, now.get(key)) for key, before in self._seen.items() if now.get(key, -1) < before}
        assert not fallen
        self._seen = now

    def value(self, name: str) -> float:
        """The sum over its labels."""
        self.look()
        return sum(value for (each, _), value in self._seen.items() if each == name)

    def counted(self) -> set[str]:
        self.look()
        return {name for (name, _), value in self._seen.items() if value and name.endswith("_total")}


def recv_any() -> Step:
    """A byte, or the end."""

    async def step(wire: Wire) -> None:
        await wire.until(lambda: len(wire.received) > wire.taken or wire.ending != "open")

    return step


class Shop:
    """An object with an HTTP and a TCP port, in front of an endpoint that answers and one that refuses."""

    def __init__(self, plane: DataPlane | Fleet, good: Backend) -> None:
        self.plane = plane
        self.watch = Watch(plane.telemetry)
        self.web, self.raw = free_port(), free_port()
        self.good = Endpoint(id="good", address="127.0.0.1", port=good.port)
        self.bad = Endpoint(id="bad", address="127.0.0.1", port=free_port())

    async def apply(
        self, *ports: str, backend: str = "all", endpoints: tuple[Endpoint, ...] = (), **fields: Any
    ) -> None:
        listed = SnapshotBackend(
            name=backend, weight=1, weight_per="Endpoint", endpoints=endpoints or (self.good, self.bad)
        )
        both = {
            "web": SnapshotPort(name="web", port=80, listen=self.web, backends=(listed,)),
            "raw": SnapshotPort(name="raw", port=81, listen=self.raw, protocol="TCP", backends=(listed,)),
        }
        terms: dict[str, Any] = {
            "retries": Retries(attempts=2),
            "health": Health(passive=PassiveHealth(consecutive_failures=1)),
        }
        fields = terms | fields
        await self.plane.apply(
            Snapshot(namespace="store", name="shop", ports=tuple(both[name] for name in ports), **fields)
        )
        self.watch.look()

    async def connect(self, port: int) -> Wire:
        _, wire = await asyncio.get_running_loop().create_connection(Wire, "127.0.0.1", port)
        return wire

    async def ask(self, port: int) -> bytes:
        """The first line of the answer, over a connection of its own."""
        wire = await self.connect(port)
        await wire.send(GET)
        line = (await wire.take_to(b"\r\n")).rstrip()
        wire.rst(flush=False)
        self.watch.look()
        return line

    def clients(self) -> int:
        self.watch.look()
        return sum(gauges.clients for gauges in self.plane.gauges().values())

    async def everything(self) -> None:
        """Traffic until all that can be counted here is."""
        await self.apply("web", "raw")
        for _ in range(8):
            await self.ask(self.web)
            await self.ask(self.raw)
        await self.apply("web", "raw", limits=Limits(max_connections=1))
        held = await self.connect(self.web)
        await held.send(GET)
        await held.response()
        while b"503" not in await self.ask(self.web):
            pass
        held.rst(flush=False)
        await reached(lambda: self.watch.counted() >= COUNTED)

    async def changes(self) -> None:
        """What goes, and what comes again; requests go on."""
        await self.apply("web", "raw", endpoints=(self.good,))
        await self.ask(self.web)
        await self.apply("web", "raw", backend="another")
        await self.ask(self.web)
        await self.ask(self.raw)
        await reached(lambda: self.clients() == 0)
        leaving = await self.connect(self.raw)
        await leaving.send(GET)
        await reached(lambda: self.clients() == 1)
        await self.apply("web", backend="another")
        leaving.rst(flush=False)
        await reached(lambda: self.clients() == 0)
        await self.ask(self.web)
        await self.apply("raw", backend="another")
        await self.ask(self.raw)
        await self.plane.forget(("store", "shop"))
        self.watch.look()
        await self.apply("web", "raw")
        await self.ask(self.web)


async def test_no_counter_falls_whatever_goes(rig: Rig) -> None:
    await rig.open()
    shop = Shop(rig.plane, rig.backend)
    await shop.everything()
    # What is kept alive ends under the next request: that is made good, and counted.
    rig.backend.script(recv_head(), send(OK), recv_any(), fin())
    await shop.apply("web", endpoints=(replace(shop.good, id="racing"),))
    while not shop.watch.value("steelyard_pool_races_total"):
        await shop.ask(shop.web)
    rig.backend.script(serve(OK))

    await shop.changes()

    await rig.reached(lambda: not rig.plane.fronts)
    await shop.plane.forget(("store", "shop"))
    assert rig.plane.lanes == ()
    assert shop.watch.counted() >= COUNTED | {"steelyard_pool_races_total"}


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet(replace(SETTINGS, workers=2), Telemetry())
    running = asyncio.create_task(fleet.run(), name="workers")
    yield fleet
    await fleet.stop_listening()
    fleet._closing = True
    for worker in list(fleet.workers.values()):
        worker.kill()
    await running
    fleet.close()


async def test_no_counter_of_several_workers_falls_whatever_goes(fleet: Fleet) -> None:
    backend = Backend("good")
    await backend.start()
    shop = Shop(fleet, backend)
    await shop.everything()

    await shop.changes()
    for index in range(2):
        fleet.workers[index].kill()
        await reached(lambda index=index: shop.watch.value("steelyard_worker_restarts_total") == index + 1)
    await reached(lambda: shop.watch.look() is None and sum(each.synced for each in fleet.workers.values()) == 2)
    await shop.changes()

    before = shop.watch.value("steelyard_requests_total")
    await shop.ask(shop.web)
    await reached(lambda: shop.watch.value("steelyard_requests_total") > before)
    await backend.close()
