"""The reconciler: from the store to the API server's far side, for one object at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

import pytest
from aiohttp import web

from controller.children import ChildSettings, authority, children
from controller.kube.api import Api
from controller.kube.events import Recorder
from controller.kube.reconciler import Desired, Reconciler
from controller.kube.store import Listeners, Store
from controller.kube.writers import NotYetError, Writers
from controller.model.endpoints import service_record, slice_record
from controller.model.service import BalancedService
from controller.translate import Translated, translate
from controller.translate.inputs import ProxyReport
from tests.component.cluster_objects import balanced, endpoint, service, slice_of
from tests.component.fake_api import FakeApi, refusal, reply, serving

SHOP = ("store", "shop")
STATUS = "/apis/steelyard.dev/v1alpha1/namespaces/store/balancedservices/shop/status"
SERVICE = "/api/v1/namespaces/store/services/shop"
ACCOUNT = "/api/v1/namespaces/store/serviceaccounts/shop-lb"
DEPLOYMENT = "/apis/apps/v1/namespaces/store/deployments/shop-lb"
BUDGET = "/apis/policy/v1/namespaces/store/poddisruptionbudgets/shop-lb"
AUTHORITY = "/api/v1/namespaces/store/configmaps/steelyard-ca"
EVENTS = "/apis/events.k8s.io/v1/namespaces/store/events"
CHILDREN = [ACCOUNT, DEPLOYMENT, BUDGET, SERVICE]


async def applied(request: web.Request) -> web.StreamResponse:
    sent = await request.json()
    meta = {"uid": f"uid-of-{request.path}", "resourceVersion": "7", "generation": 1} | sent["metadata"]
    return await reply(sent | {"metadata": meta})(request)


async def status_applied(request: web.Request) -> web.StreamResponse:
    """The whole object, as the subresource answers."""
    return await reply(balanced(version="7") | {"status": (await request.json())["status"]})(request)


def desired(certified: Callable[[], bool] = lambda: True) -> Desired:
    settings = ChildSettings(image="proxy:1", control="https://steelyard.test:19443")

    def wanted(service: BalancedService, result: Translated) -> Sequence[dict[str, Any]]:
        assert result.snapshot is not None
        return children(service, result.snapshot, result.admitted, settings)

    def shared(namespace: str, owners: Collection[BalancedService]) -> Sequence[dict[str, Any]]:
        if not certified():
            raise NotYetError
        return [authority(namespace, owners, "PEM")]

    return Desired(children=wanted, shared=shared)


class Bench:
    """A store, a reconciler, and the proxies' reports, before a fake API server."""

    def __init__(self, api: Api, lease_left: Callable[[], float] = lambda: 60.0) -> None:
        self.reports: dict[tuple[str, str], list[ProxyReport]] = {}
        listeners = Listeners(publish=lambda *_: None, write=lambda key: self.reconciler.changed(key))
        self.store = Store(listeners, self.reports)
        self.recorder = Recorder(api, "test")
        self.certified = True
        wanted = desired(lambda: self.certified)
        self.reconciler = Reconciler(self.store, Writers(api, lease_left), self.recorder, wanted)

    def start(self, *objects: dict[str, Any]) -> None:
        self.store.end_list(None, objects)
        services = [service("shop-v1"), service("shop")]
        self.store.services.replace(
            None, {("store", each["metadata"]["name"]): service_record(each) for each in services}
        )
        self.store.slices.replace(None, {})
        self.store.grants.replace(None, {})
        assert self.store.synced

    def slices(self, *items: dict[str, Any]) -> None:
        self.store.slices.replace(None, {("store", item["metadata"]["name"]): slice_record(item) for item in items})


@pytest.fixture
def fake() -> FakeApi:
    fake = FakeApi()
    for path in (*CHILDREN, AUTHORITY):
        fake.on("PATCH", path, applied)
    fake.on("PATCH", STATUS, status_applied)
    fake.on("POST", EVENTS, applied)
    return fake


@pytest.fixture
async def bench(fake: FakeApi) -> AsyncIterator[Bench]:
    async with serving(fake) as api:
        yield Bench(api)


def facts(fake: FakeApi) -> dict[str, str]:
    """type: reason, as last written."""
    return {each["type"]: each["reason"] for each in fake.bodies("PATCH", STATUS)[-1]["status"]["conditions"]}


def written(fake: FakeApi) -> list[str]:
    return [path for verb, path, *_ in fake.asked if verb in ("PATCH", "POST", "DELETE")]


async def test_children_and_status_are_written_once(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced())

    await bench.reconciler.reconcile(SHOP)

    assert written(fake) == [AUTHORITY, *CHILDREN, STATUS]  # pods that come before what they mount wait for it
    assert facts(fake) == {
        "Accepted": "Accepted",
        "ResolvedRefs": "ResolvedRefs",
        "Programmed": "NoProxiesReady",
        "Ready": "NoEndpoints",
    }
    assert fake.bodies("PATCH", STATUS)[-1]["metadata"]["uid"] == "uid-of-shop"
    assert fake.asked[-1][2] == {"fieldManager": "steelyard-status", "force": "true"}


async def test_no_child_comes_before_what_its_pods_mount_can_be_written(fake: FakeApi, bench: Bench) -> None:
    bench.certified = False
    bench.start(balanced())
    with pytest.raises(NotYetError):
        await bench.reconciler.reconcile(SHOP)
    assert written(fake) == []

    task = asyncio.ensure_future(bench.reconciler.run())
    try:
        await asyncio.sleep(0)  # it is tried, in vain
        bench.certified = True
        await asyncio.wait_for(fake.until("PATCH", STATUS), 5)
    finally:
        task.cancel()
        await asyncio.wait([task])

    assert written(fake)[0] == AUTHORITY
    assert set(CHILDREN) < set(written(fake))


async def test_the_second_time_nothing_is_written(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced())
    await bench.reconciler.reconcile(SHOP)
    for body in [body for path in CHILDREN for body in fake.bodies("PATCH", path)]:
        meta = {"uid": f"uid-of-{body['kind']}", "resourceVersion": "9"} | body["metadata"]
        table = bench.store.child_table(body["apiVersion"], body["kind"])
        table.put(("store", meta["name"]), body | {"metadata": meta})
    before = len(written(fake))

    await bench.reconciler.reconcile(SHOP)

    assert written(fake)[before:] == []


async def test_a_conflict_stops_all_children_and_stands_in_the_status(fake: FakeApi, bench: Bench) -> None:
    fake.on("GET", SERVICE, reply({"metadata": {"namespace": "store", "name": "shop", "uid": "theirs"}}))
    bench.start(balanced())

    again = await bench.reconciler.reconcile(SHOP)

    assert written(fake) == [AUTHORITY, STATUS]
    assert facts(fake)["Accepted"] == "Conflict"
    assert again is not None
    assert again <= 30

    fake.again("GET", SERVICE, refusal(404, "NotFound"))
    await bench.reconciler.reconcile(SHOP)

    assert facts(fake)["Accepted"] == "Accepted"
    assert fake.count("PATCH", SERVICE) == 1


async def test_an_object_of_another_version_gets_its_faults_and_no_child(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced(algorithm={"type": "OfTheNextVersion"}))

    await bench.reconciler.reconcile(SHOP)

    assert written(fake) == [STATUS]
    assert facts(fake)["Accepted"] == "Unsupported"


async def test_a_deleted_owner_gets_no_writes(fake: FakeApi, bench: Bench) -> None:
    item = balanced()
    item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    bench.start(item)

    await bench.reconciler.reconcile(SHOP)

    assert fake.asked == []


async def test_what_the_spec_no_longer_wants_is_deleted(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced(proxy={"mode": "External"}))
    fake.on("DELETE", DEPLOYMENT, reply({}))
    ref = {"apiVersion": "steelyard.dev/v1alpha1", "kind": "BalancedService", "controller": True, "uid": "uid-of-shop"}
    meta = {"namespace": "store", "name": "shop-lb", "labels": {"steelyard.dev/balancedservice": "shop"}}
    ours = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta | {"uid": "d", "ownerReferences": [ref]}}
    theirs = {"apiVersion": "v1", "kind": "Service", "metadata": meta | {"uid": "s", "name": "copy"}}
    bench.store.child_table("apps/v1", "Deployment").put(("store", "shop-lb"), ours)
    bench.store.child_table("v1", "Service").put(("store", "copy"), theirs)

    await bench.reconciler.reconcile(SHOP)

    assert fake.bodies("DELETE", DEPLOYMENT)[0]["preconditions"] == {"uid": "d"}
    assert written(fake) == [DEPLOYMENT, STATUS]


async def test_programmed_follows_the_acknowledgement_of_the_ready_proxies(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced())
    bench.slices(slice_of("shop", endpoints=[endpoint("10.0.1.1")]), slice_of("shop-v1", "10.0.0.1"))
    await bench.reconciler.reconcile(SHOP)
    pending = facts(fake)["Programmed"]

    bench.reports[SHOP] = [ProxyReport(proxy="pod-10.0.1.1", generation=1, version="v")]
    await bench.reconciler.reconcile(SHOP)

    assert (pending, facts(fake)["Programmed"]) == ("Pending", "Programmed")


async def test_last_transition_time_moves_only_with_status(fake: FakeApi, bench: Bench) -> None:
    item = balanced()
    old = {
        "type": "Ready",
        "status": "False",
        "reason": "Old",
        "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    accepted = old | {"type": "Accepted", "status": "False"}
    bench.start(item | {"status": {"conditions": [old, accepted]}})

    await bench.reconciler.reconcile(SHOP)

    times = {each["type"]: each["lastTransitionTime"] for each in _conditions(fake)}
    assert times["Ready"] == "2020-01-01T00:00:00Z"
    assert times["Accepted"] > "2026"


def _conditions(fake: FakeApi) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fake.bodies("PATCH", STATUS)[-1]["status"]["conditions"]
    return found


async def test_counts_are_written_at_most_once_a_second_and_conditions_at_once(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced())
    bench.slices(slice_of("shop-v1", "10.0.0.1"))
    await bench.reconciler.reconcile(SHOP)

    bench.slices(slice_of("shop-v1", "10.0.0.1", "10.0.0.2"))
    again = await bench.reconciler.reconcile(SHOP)

    assert fake.count("PATCH", STATUS) == 1
    assert again is not None
    assert 0 < again <= 1

    bench.slices()
    await bench.reconciler.reconcile(SHOP)
    assert fake.count("PATCH", STATUS) == 2


async def test_the_authority_of_a_namespace_is_owned_by_all_its_objects(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced("shop"), balanced("blog"))

    await bench.reconciler.reconcile(("store", ""))

    owners = fake.bodies("PATCH", AUTHORITY)[0]["metadata"]["ownerReferences"]
    assert [each["name"] for each in owners] == ["blog", "shop"]


async def test_transitions_become_events_and_the_first_wait_does_not(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced())
    task = asyncio.ensure_future(bench.reconciler.run())
    try:
        await asyncio.wait_for(fake.until("POST", EVENTS, 1), 5)
        bench.slices(slice_of("shop-v1", "10.0.0.1"))
        await asyncio.wait_for(fake.until("POST", EVENTS, 3), 5)
    finally:
        task.cancel()
        await asyncio.wait([task])

    said = [(each["type"], each["reason"], each["regarding"]["name"]) for each in fake.bodies("POST", EVENTS)]
    assert ("Normal", "Accepted", "shop") in said
    assert ("Normal", "Ready", "shop") in said
    assert not [each for each in said if each[0] == "Warning"]


async def test_a_refused_write_is_told_and_tried_again_and_the_status_is_written(fake: FakeApi, bench: Bench) -> None:
    fake.again("PATCH", DEPLOYMENT, refusal(422, "Invalid"), refusal(422, "Invalid"), applied)
    bench.start(balanced())
    task = asyncio.ensure_future(bench.reconciler.run())
    try:
        await asyncio.wait_for(fake.until("PATCH", DEPLOYMENT, 3), 5)
        await asyncio.wait_for(fake.until("PATCH", SERVICE), 5)
        await asyncio.wait_for(fake.until("POST", EVENTS, 3), 5)
    finally:
        task.cancel()
        await asyncio.wait([task])

    assert fake.count("PATCH", STATUS) == 1
    assert "WriteRefused" in [each["reason"] for each in fake.bodies("POST", EVENTS)]


async def test_a_burst_of_changes_to_one_object_is_few_writes(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced())
    task = asyncio.ensure_future(bench.reconciler.run())
    try:
        await asyncio.wait_for(fake.until("PATCH", STATUS), 5)
        for number in range(5000):
            bench.slices(slice_of("shop-v1", f"10.0.{number // 250}.{number % 250}"))
        await asyncio.wait_for(fake.until("PATCH", STATUS, 2), 5)
    finally:
        task.cancel()
        await asyncio.wait([task])

    assert fake.count("PATCH", STATUS) <= 3


async def test_while_not_leading_nothing_is_queued_or_written(fake: FakeApi, bench: Bench) -> None:
    bench.start(balanced())

    bench.slices(slice_of("shop-v1", "10.0.0.1"))

    assert repr(bench.reconciler) == "<Reconciler idle failures=0>"
    assert fake.asked == []


async def test_after_a_take_over_programmed_waits_for_those_not_heard_from_yet(fake: FakeApi, bench: Bench) -> None:
    programmed = {
        "type": "Programmed",
        "status": "True",
        "reason": "Programmed",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    bench.start(balanced() | {"status": {"conditions": [programmed]}})
    bench.slices(slice_of("shop", endpoints=[endpoint("10.0.1.1")]), slice_of("shop-v1", "10.0.0.1"))
    task = asyncio.ensure_future(bench.reconciler.run())
    try:
        await asyncio.wait_for(fake.until("PATCH", SERVICE), 5)
        bench.reports[SHOP] = [ProxyReport(proxy="pod-10.0.1.1", generation=1, version="v")]
        bench.reconciler.changed(SHOP)
        await asyncio.wait_for(fake.until("PATCH", STATUS), 5)
    finally:
        task.cancel()
        await asyncio.wait([task])

    assert [facts["Programmed"] for facts in _all_facts(fake)] == ["Programmed"]


def _all_facts(fake: FakeApi) -> list[dict[str, str]]:
    return [
        {each["type"]: each["reason"] for each in body["status"]["conditions"]} for body in fake.bodies("PATCH", STATUS)
    ]


async def test_a_front_service_that_lost_its_selector_keeps_no_slice_of_others(fake: FakeApi, bench: Bench) -> None:
    slices = "/apis/discovery.k8s.io/v1/namespaces/store/endpointslices"
    endpoints = "/api/v1/namespaces/store/endpoints/shop"
    bench.start(balanced(proxy={"mode": "Sidecar"}))
    old = slice_of("shop", "10.0.1.1", name="shop-old")
    old["metadata"]["labels"]["steelyard.dev/balancedservice"] = "shop"  # copied from the Service by their controller
    bench.slices(slice_of("shop-v1", "10.0.0.1"), old)
    bench.store.child_table("discovery.k8s.io/v1", "EndpointSlice").put(("store", "shop-old"), old)
    fake.on("DELETE", endpoints, reply({}))
    fake.on("DELETE", f"{slices}/shop-old", reply({}))
    name = _sidecar_slice(bench)
    fake.on("PATCH", f"{slices}/{name}", applied)

    again = await bench.reconciler.reconcile(SHOP)

    assert written(fake) == [f"{slices}/{name}", SERVICE, endpoints, f"{slices}/shop-old", STATUS]
    assert again is not None
    assert again <= 2


def _sidecar_slice(bench: Bench) -> str:
    service = bench.store.inputs.objects[SHOP]
    assert isinstance(service, BalancedService)
    wanted = desired().children(service, translate(bench.store.inputs, SHOP))
    return next(str(each["metadata"]["name"]) for each in wanted if each["kind"] == "EndpointSlice")


async def test_a_new_image_rolls_only_as_many_deployments_at_a_time_as_it_may(fake: FakeApi, bench: Bench) -> None:
    names = [f"shop-{number}" for number in range(7)]
    for path in (f"/apis/apps/v1/namespaces/store/deployments/{name}-lb" for name in names):
        fake.on("PATCH", path, applied)
    for name in names:
        for path in (
            f"/apis/steelyard.dev/v1alpha1/namespaces/store/balancedservices/{name}/status",
            f"/api/v1/namespaces/store/services/{name}",
            f"/api/v1/namespaces/store/serviceaccounts/{name}-lb",
            f"/apis/policy/v1/namespaces/store/poddisruptionbudgets/{name}-lb",
        ):
            fake.on("PATCH", path, applied)
    bench.start(*(balanced(name) for name in names))
    table = bench.store.child_table("apps/v1", "Deployment")
    table.replace(None, {("store", f"{name}-lb"): rolled_out(name, "proxy:0") for name in names})

    for name in names:
        await bench.reconciler.reconcile(("store", name))

    images = [
        body["spec"]["template"]["spec"]["containers"][0]["image"]
        for name in names
        for body in fake.bodies("PATCH", f"/apis/apps/v1/namespaces/store/deployments/{name}-lb")
    ]
    # Their labels differ too, and that need not wait.
    assert images == ["proxy:1"] * 5 + ["proxy:0"] * 2


def rolled_out(name: str, image: str) -> dict[str, Any]:
    owner = {"apiVersion": "steelyard.dev/v1alpha1", "kind": "BalancedService", "controller": True}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "namespace": "store",
            "name": f"{name}-lb",
            "uid": f"uid-of-{name}-lb",
            "generation": 1,
            "resourceVersion": "1",
            "labels": {"steelyard.dev/balancedservice": name},
            "ownerReferences": [owner | {"name": name, "uid": f"uid-of-{name}"}],
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "proxy", "image": image}]}}},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
    }


async def test_what_a_thousand_proxies_report_is_looked_at_together_and_what_one_reports_soon(bench: Bench) -> None:
    """A look goes through all of them: one after each report would leave no time for anything else."""
    bench.start()
    task = asyncio.ensure_future(bench.reconciler.run())
    try:
        while "idle" in repr(bench.reconciler):  # noqa: ASYNC110 - it tells nobody that it runs
            await asyncio.sleep(0)
        for _ in range(1000):
            bench.reconciler.reported(SHOP, 1000)
        many = repr(bench.reconciler)
        bench.reconciler.reported(SHOP, 1)
        async with asyncio.timeout(0.9):
            while "later=1" in repr(bench.reconciler):  # noqa: ASYNC110 - nor that it has looked
                await asyncio.sleep(0.001)
    finally:
        task.cancel()
        await asyncio.wait([task])

    assert "ready=0 processing=0 later=1" in many
