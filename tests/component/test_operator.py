"""The whole operator, kopf included, against a scripted API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from kubernetes.aio.client import Configuration

from controller.kube.api import Api
from controller.kube.handlers import Front
from controller.kube.operator import Operator, Proxies, Scope
from controller.kube.reconciler import Desired
from controller.kube.resources import CHILDREN
from controller.model.snapshot import Snapshot
from tests.component.cluster_objects import balanced, service, slice_of
from tests.component.fake_api import FakeApi, Stream, listing, refusal, reply, serving

OBJECTS = "/apis/steelyard.dev/v1alpha1/balancedservices"
SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
SELECTED = f"{SLICES}?kubernetes.io/service-name"
OWNED = "steelyard.dev/balancedservice"
GRANTS = "/apis/gateway.networking.k8s.io/v1beta1/referencegrants"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ours/leases"
SHOP = ("store", "shop")
VERSION = {"groupVersion": "steelyard.dev/v1alpha1", "version": "v1alpha1"}
GROUP = {"name": "steelyard.dev", "versions": [VERSION], "preferredVersion": VERSION}
# What kopf asks before it watches: it waits for the kinds that it knows, whether it needs them or not.
ABOUT = [("balancedservices", "BalancedService")]
CORE = [("namespaces", "Namespace"), ("events", "Event")]


def kinds(*known: tuple[str, str]) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch", "create"]
    resources = [
        {"name": name, "singularName": kind.lower(), "namespaced": kind != "Namespace", "kind": kind, "verbs": verbs}
        for name, kind in known
    ]
    return {"kind": "APIResourceList", "resources": resources}


class World:
    """A fake cluster that is empty but for what the test puts into its script, and what was published of it."""

    def __init__(self) -> None:
        self.fake = FakeApi()
        self.objects = Stream()
        self.slices = Stream()
        self.published: dict[tuple[str, str], Snapshot] = {}
        self.synced = asyncio.Event()
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.fake.on("LIST", "/api", reply({"versions": ["v1"]}))
        self.fake.on("LIST", "/api/v1", reply(kinds(*CORE)))
        self.fake.on("LIST", "/apis", reply({"groups": [GROUP]}))
        self.fake.on("LIST", "/apis/steelyard.dev/v1alpha1", reply(kinds(*ABOUT)))
        self.fake.on("WATCH", OBJECTS, self.objects, Stream())
        self.fake.on("LIST", SERVICES, listing(service("shop-v1")))
        self.fake.on("WATCH", SERVICES, Stream())
        self.fake.on("LIST", SELECTED, listing(slice_of("shop-v1", "10.0.0.1")))
        self.fake.on("WATCH", SELECTED, self.slices, Stream())
        self.fake.on("LIST", LEASES + "/steelyard-controller", refusal(403, "Forbidden"))  # a follower
        for resource in CHILDREN.values():
            self.fake.on("LIST", f"{resource.path()}?{OWNED}", listing())
            self.fake.on("WATCH", f"{resource.path()}?{OWNED}", Stream())

    def change(self, kind: str, item: dict[str, Any], *there: dict[str, Any]) -> None:
        """An event of an object, and lists from now on that agree with it."""
        self.fake.again("LIST", OBJECTS, listing(*there))
        self.objects.send(kind, item)

    def put(self, snapshot: Snapshot) -> None:
        self.published[snapshot.key] = snapshot
        self._tell()

    def gone(self, key: tuple[str, str]) -> None:
        self.published.pop(key, None)
        self._tell()

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._news:
                self._news.notify_all()

        task = asyncio.ensure_future(tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def addresses(self, key: tuple[str, str] = SHOP) -> set[str] | None:
        """What proxies are told to send to; None while there is no snapshot."""
        snapshot = self.published.get(key)
        if snapshot is None:
            return None
        return {each.address for port in snapshot.ports for backend in port.backends for each in backend.endpoints}

    async def until(self, holds: Callable[[], bool], seconds: float = 8) -> None:
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(holds), seconds)

    @asynccontextmanager
    async def operating(self) -> AsyncIterator[Operator]:
        async with serving(self.fake) as api:
            proxies = Proxies(put=self.put, gone=self.gone, synced=self.synced.set, reports={})
            desired = Desired(children=lambda *_: [], shared=lambda *_: [])
            operator = Operator(
                api, _configuration(api), Scope(namespace="ours", identity="one@127.0.0.1:1"), proxies, desired
            )
            task = asyncio.ensure_future(operator.run())
            try:
                yield operator
                assert not task.done(), task.exception()
            finally:
                task.cancel()
                await asyncio.wait([task])


def _configuration(api: Api) -> Callable[[], Any]:
    async def configure() -> Configuration:
        client = await api._current()
        configuration: Configuration = client.configuration
        return configuration

    return configure


async def test_a_slice_reaches_the_proxies_and_its_end_too() -> None:
    world = World()
    world.fake.on("LIST", OBJECTS, listing(balanced()))

    async with world.operating() as operator:
        await world.until(lambda: world.addresses() == {"10.0.0.1"})
        assert operator.ready
        world.slices.send("MODIFIED", slice_of("shop-v1", "10.0.0.1", "10.0.0.2", version="101"))
        await world.until(lambda: world.addresses() == {"10.0.0.1", "10.0.0.2"})
        world.slices.send("DELETED", slice_of("shop-v1", version="102"))
        await world.until(lambda: world.addresses() == set())
        assert operator.faults() == []


async def test_a_change_comes_by_kopf_and_so_does_the_end() -> None:
    world = World()
    world.fake.on("LIST", OBJECTS, listing())

    async with world.operating():
        world.change("ADDED", balanced(version="101"), balanced(version="101"))
        await world.until(lambda: world.addresses() == {"10.0.0.1"})
        world.change("DELETED", balanced(version="102"))
        await world.until(lambda: world.addresses() is None)


async def test_nothing_is_published_before_the_last_kind_is_listed() -> None:
    world, gate = World(), asyncio.Event()
    world.fake.on("LIST", OBJECTS, listing(balanced()))

    async def late(request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return await listing(slice_of("shop-v1", "10.0.0.1"))(request)

    world.fake.again("LIST", SELECTED, refusal(500), late)

    async with world.operating() as operator:
        await world.fake.until("LIST", SLICES, 3)  # that of the children, the refused one, and the late one
        assert world.addresses() is None
        assert not operator.ready
        assert not world.synced.is_set()
        gate.set()
        await world.until(lambda: world.addresses() == {"10.0.0.1"})


async def test_nobody_writes_but_the_holder_of_the_lease() -> None:
    world = World()
    world.fake.on("LIST", OBJECTS, listing(balanced()))

    async with world.operating():
        await world.until(lambda: world.addresses() == {"10.0.0.1"})
        await world.fake.until("LIST", LEASES + "/steelyard-controller", 1)

    assert [verb for verb, *_ in world.fake.asked if verb not in ("LIST", "WATCH", "GET")] == []


async def test_a_ghost_that_kopf_keeps_after_a_lost_history_is_gone_soon() -> None:
    """kopf relists and compares with nothing: an object deleted meanwhile is never reported as such."""
    world = World()
    world.fake.on("LIST", OBJECTS, listing(balanced("shop"), balanced("ghost")), listing(balanced("shop")))
    world.fake.again("WATCH", OBJECTS, _expired(), Stream())

    async with world.operating():
        await world.until(lambda: {"shop", "ghost"} == {name for _, name in world.published})
        await world.until(lambda: {name for _, name in world.published} == {"shop"})


async def test_a_kind_that_lost_its_history_has_the_objects_listed_too() -> None:
    """Of the last object that goes kopf's list says nothing at all."""
    world = World()
    world.fake.on("LIST", OBJECTS, listing())
    world.fake.again("LIST", OBJECTS, listing(balanced("ghost")), listing(balanced("ghost")), listing())
    lost = Stream()
    world.fake.again("WATCH", SELECTED, lost, Stream())

    async with world.operating():
        await world.until(lambda: {name for _, name in world.published} == {"ghost"})
        lost.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        await world.until(lambda: world.published == {})


async def test_an_operator_that_starts_is_no_staler_than_the_one_before_it() -> None:
    """The newest slice may be gone by then, so the version of the whole list is what counts."""
    world = World()
    world.fake.again("LIST", SELECTED, listing(slice_of("shop-v1", "10.0.0.1", version="7"), version="50"))
    world.fake.on("LIST", OBJECTS, listing())

    async with world.operating() as operator:
        await asyncio.wait_for(world.synced.wait(), 8)
        assert operator.freshness == 50
        world.slices.send("MODIFIED", slice_of("shop-v1", "10.0.0.2", version="60"))
        world.change("ADDED", balanced(version="61"), balanced(version="61"))
        await world.until(lambda: world.addresses() == {"10.0.0.2"})
        assert operator.freshness == 60


def _expired() -> Stream:
    stream = Stream()
    stream.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    return stream


async def test_kopf_that_ends_is_started_again_and_what_was_missed_is_listed() -> None:
    world = World()
    world.fake.on("LIST", OBJECTS, listing(balanced()))
    ending = Stream()
    ending.send("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "any but 410 ends it"})
    world.fake.again("WATCH", OBJECTS, ending, world.objects)

    async with world.operating() as operator:
        await world.fake.until("WATCH", OBJECTS, 2)
        world.change("ADDED", balanced("blog", version="101"), balanced(), balanced("blog", version="101"))
        await world.until(lambda: ("store", "blog") in world.published, 20)
        assert repr(operator.front).startswith("<Front restarts=1 ")


async def test_the_front_ends_within_seconds_of_being_told_to() -> None:
    world = World()
    world.fake.on("LIST", OBJECTS, listing())
    async with serving(world.fake) as api:
        front = Front(_configuration(api), lambda *_: None)
        task = asyncio.ensure_future(front.run())
        await world.fake.until("WATCH", OBJECTS)

        task.cancel()
        done, _ = await asyncio.wait([task], timeout=9)

        assert done
