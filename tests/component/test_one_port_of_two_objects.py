"""Two objects that one proxy serves, by an operator, ask for the same port: it stays with whom it was given to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from controller import controlled
from controller.discovery.client import Settings
from controller.model.snapshot import Snapshot, SnapshotProxy
from controller.proxy.fleet import Fleet
from controller.proxy.plane import DataPlane
from controller.settings import ProxySettings
from controller.telemetry import Telemetry
from tests.component.test_proxy_command import free_port
from tests.component.test_sidecar import Operator, at_gateway, backend
from tests.component.test_workers import reached

NAMES = ("aa", "bb")


class Shops:
    """The operator, two backends that say their names, and a proxy of mode External for both objects."""

    def __init__(self, operator: Operator, plane: DataPlane | Fleet, backends: dict[str, int]) -> None:
        self.operator = operator
        self.plane = plane
        self._backends = backends

    def put(self, name: str, port: int, generation: int = 1) -> None:
        found: Snapshot = at_gateway(port, self._backends[name], generation)
        self.operator.put(replace(found, name=name, mode="External", proxy=SnapshotProxy(accept_grace=0, drain=0.1)))

    async def in_force(self, name: str, port: int) -> None:
        def served() -> bool:
            known = self.plane.snapshots.get(("store", name))
            return known is not None and known[0].ports[0].listen == port and self.said(name) == ""

        await reached(served)

    def said(self, name: str) -> str | None:
        """The proxy's word on its latest configuration, "" if it is in force."""
        report = self.operator.reports.get(("store", name))
        return None if report is None else "" if report.ack.ok else report.ack.error

    async def refused(self, name: str) -> str:
        await reached(lambda: bool(self.said(name)))
        return str(self.said(name))


async def asked(port: int) -> set[str]:
    """Who answers."""
    said = set()
    for _ in range(10):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as response:
            good = response.status == 200
            said.add((await response.json())["name"] if good else (await response.text()).partition(":")[0])
    return said


@asynccontextmanager
async def shops(token: Path, workers: int) -> AsyncIterator[Shops]:
    operator = Operator()
    async with AsyncExitStack() as stack:
        backends = {name: await stack.enter_async_context(backend(name)) for name in NAMES}
        url = await stack.enter_async_context(operator.up())
        settings = ProxySettings(host="127.0.0.1", workers=workers)
        plane = Fleet(settings, Telemetry()) if workers > 1 else DataPlane(settings, Telemetry())
        following = Settings(url=url, namespace="store", names=NAMES, token=token)
        tasks = [asyncio.create_task(controlled.follow(plane, following, again=0.05))]
        if isinstance(plane, Fleet):
            running = asyncio.create_task(plane.run())
            await reached(lambda: sum(worker.synced for worker in plane.workers.values()) == workers)
        try:
            yield Shops(operator, plane, backends)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if isinstance(plane, Fleet):
                await plane.drain(asyncio.Event())
                await running
            await plane.stop_listening()
            plane.close()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("token")
    return path


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_port_that_another_object_has_is_refused_and_both_keep_their_clients(token: Path, workers: int) -> None:
    first, second = free_port(), free_port()
    async with shops(token, workers) as proxy:
        proxy.put("aa", first)
        await proxy.in_force("aa", first)
        proxy.put("bb", first)

        assert f"port {first} on 127.0.0.1 is served for store/aa already" in await proxy.refused("bb")
        assert await asked(first) == {"aa"}

        proxy.put("bb", second, generation=2)
        await proxy.in_force("bb", second)
        assert (await asked(first), await asked(second)) == ({"aa"}, {"bb"})


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_object_that_asked_for_anothers_port_takes_nothing_with_it_when_it_goes(
    token: Path, workers: int
) -> None:
    first, second = free_port(), free_port()
    async with shops(token, workers) as proxy:
        proxy.put("aa", first)
        proxy.put("bb", second)
        await proxy.in_force("aa", first)
        await proxy.in_force("bb", second)
        proxy.put("bb", first, generation=2)
        await proxy.refused("bb")

        await proxy.plane.forget(("store", "bb"))

        assert await asked(first) == {"aa"}


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_port_of_an_object_that_was_deleted_is_had_by_the_one_that_waits_for_it(
    token: Path, workers: int
) -> None:
    port = free_port()
    async with shops(token, workers) as proxy:
        proxy.put("aa", port)
        await proxy.in_force("aa", port)
        proxy.put("bb", port)
        await proxy.refused("bb")

        proxy.operator.hub.gone(("store", "aa"))

        await proxy.in_force("bb", port)
        assert await asked(port) == {"bb"}
        proxy.put("aa", port, generation=2)
        assert "is served for store/bb already" in await proxy.refused("aa")
        assert await asked(port) == {"bb"}
