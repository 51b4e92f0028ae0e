"""Publishing: a burst is one, a removal does not wait, and one object's fault stops nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from controller.kube.publisher import Publisher
from controller.model.endpoints import Endpoint
from controller.model.parsing import parse
from controller.model.snapshot import Snapshot
from controller.translate.inputs import Inputs
from tests.component.cluster_objects import balanced

SHOP, BLOG = ("store", "shop"), ("store", "blog")


class World:
    """Objects, and when which of them was published."""

    def __init__(self, *names: str) -> None:
        self.objects: dict[tuple[str, str], Any] = {("store", name): parse(balanced(name)) for name in names}
        self.puts: list[str] = []
        self.gone: list[str] = []
        self.news = asyncio.Event()
        self.started = asyncio.Event()
        self.publisher = Publisher(Inputs(objects=self.objects), self._put, self._gone)

    def _put(self, snapshot: Snapshot) -> None:
        self.puts.append(snapshot.name)
        self.news.set()

    def _gone(self, key: tuple[str, str]) -> None:
        self.gone.append(key[1])
        self.news.set()

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.publisher.run(self.started.set))
        try:
            await asyncio.wait_for(self.started.wait(), 5)
            await asyncio.sleep(0.05)  # what came with the start is over
            self.news.clear()
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def heard(self) -> float:
        """Seconds until something is published."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.wait_for(self.news.wait(), 5)
        self.news.clear()
        return loop.time() - begun


async def test_what_is_known_at_the_start_is_published_before_serving_starts() -> None:
    world = World("shop", "blog")
    for key in world.objects:
        world.publisher.changed(key, False)

    async with world.publishing():
        assert sorted(world.puts) == ["blog", "shop"]


async def test_a_burst_is_published_once() -> None:
    world = World("shop")

    async with world.publishing():
        for _ in range(500):
            world.publisher.changed(SHOP, False)
            await asyncio.sleep(0)
        await world.heard()

    assert world.puts == ["shop"]


async def test_a_burst_without_end_is_cut() -> None:
    world = World("shop")
    loop = asyncio.get_running_loop()

    async with world.publishing():
        begun = loop.time()
        while not world.news.is_set():
            world.publisher.changed(SHOP, False)
            await asyncio.sleep(0.005)
            assert loop.time() - begun < 5


async def test_a_removal_does_not_wait_for_the_burst() -> None:
    world = World("shop", "blog")

    async with world.publishing():
        world.publisher.changed(BLOG, False)
        world.publisher.changed(SHOP, True)
        for _ in range(20):
            await asyncio.sleep(0)

        assert "shop" in world.puts


async def test_an_object_that_went_is_called_gone() -> None:
    world = World("shop")

    async with world.publishing():
        del world.objects[SHOP]
        world.publisher.changed(SHOP, True)
        await world.heard()

    assert world.gone == ["shop"]


async def test_the_fault_of_one_object_stops_no_other() -> None:
    world = World("shop", "blog")
    world.objects[SHOP] = Endpoint(id="no service", address="10.0.0.1", port=1)

    async with world.publishing():
        world.publisher.changed(SHOP, True)
        world.publisher.changed(BLOG, True)
        await world.heard()

    assert world.puts == ["blog"]
    assert world.publisher.failures == 1
