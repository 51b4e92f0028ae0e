"""The webhook over real HTTP, its configuration, and the pods that ask and have no sidecar."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientSession, web

from controller.children import ChildSettings
from controller.injection import InjectionSettings
from controller.kube.api import load
from controller.kube.askers import Asker, Askers, asker_record
from controller.kube.events import Said
from controller.kube.injector import PATH, Injector, WebhookConfiguration
from controller.kube.operator import Operator, Proxies, Scope
from controller.kube.reconciler import Desired
from controller.kube.reflector import Reflector
from controller.kube.resources import ASKING_PODS
from controller.translate import Inputs, gather
from tests.component.cluster_objects import balanced
from tests.component.fake_api import FakeApi, listing, refusal, reply, serving

SETTINGS = InjectionSettings(proxy=ChildSettings(image="proxy:1", control="https://operator"), version="1")
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/steelyard"
Object = dict[str, Any]


def state() -> Inputs:
    shop = balanced(proxy={"mode": "Sidecar"}) | {"status": {"sidecar": {"address": "127.64.0.1"}}}
    return gather([shop, balanced("other")])


def pod(**metadata: Any) -> Object:
    labels = {"steelyard.dev/inject": "enabled"}
    return {"metadata": {"name": "client", "labels": labels} | metadata, "spec": {"containers": [{"name": "app"}]}}


@asynccontextmanager
async def webhook(inputs: Inputs, *, synced: bool = True) -> AsyncIterator[tuple[Injector, str]]:
    injector = Injector(inputs, lambda: synced, SETTINGS)
    runner = web.AppRunner(injector.app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield injector, f"http://127.0.0.1:{runner.addresses[0][1]}{PATH}"
    finally:
        await runner.cleanup()


async def review(url: str, made: Object, namespace: str = "store") -> Object:
    request = {"uid": "r-1", "namespace": namespace, "object": made, "operation": "CREATE"}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    async with ClientSession() as session, session.post(url, json=body) as response:
        assert response.status == 200
        answer = await response.json()
    assert answer["kind"] == "AdmissionReview"
    assert answer["response"]["uid"] == "r-1"
    found: Object = answer["response"]
    return found


def patch(response: Object) -> list[Object]:
    assert response["patchType"] == "JSONPatch"
    found: list[Object] = json.loads(base64.b64decode(response["patch"]))
    return found


async def test_a_pod_that_asks_is_given_the_sidecar_of_its_namespaces_services() -> None:
    async with webhook(state()) as (injector, url):
        response = await review(url, pod())

        operations = {each["path"]: each["value"] for each in patch(response)}
        assert response["allowed"]
        assert operations.keys() == {
            "/metadata/annotations",
            "/spec/initContainers",
            "/spec/volumes",
            "/spec/hostAliases",
        }
        assert "--sidecar=shop=127.64.0.1:80/HTTP/http" in operations["/spec/initContainers"][0]["args"]
        assert injector.counts == {"injected": 1, "refused": 0, "unchanged": 0}


@pytest.mark.parametrize(
    "made",
    [
        pod(labels={}),
        pod(labels={"steelyard.dev/inject": "disabled"}),
        pod(annotations={"steelyard.dev/injected": "1"}),
    ],
)
async def test_a_pod_that_does_not_ask_or_has_it_already_is_untouched(made: Object) -> None:
    async with webhook(state()) as (_, url):
        assert await review(url, made) == {"uid": "r-1", "allowed": True}


async def test_a_bad_annotation_is_refused_with_a_message_that_names_it() -> None:
    async with webhook(state()) as (_, url):
        response = await review(url, pod(annotations={"steelyard.dev/services": "shpo"}))

        assert not response["allowed"]
        assert "annotation steelyard.dev/services" in response["status"]["message"]


async def test_a_namespace_without_services_warns_and_admits() -> None:
    async with webhook(state()) as (_, url):
        response = await review(url, pod(), namespace="elsewhere")

        assert response["allowed"]
        assert "patch" not in response
        assert "has no BalancedService" in response["warnings"][0]


async def test_before_the_store_is_complete_nothing_is_decided() -> None:
    request = {"request": {"uid": "r-1", "object": pod()}}
    async with (
        webhook(state(), synced=False) as (_, url),
        ClientSession() as session,
        session.post(url, json=request) as response,
    ):
        assert response.status == 503


async def test_what_is_no_review_is_refused() -> None:
    async with webhook(state()) as (_, url), ClientSession() as session, session.post(url, data=b"[]") as response:
        assert response.status == 400


async def test_the_configuration_is_told_whom_to_trust_and_only_once() -> None:
    fake = FakeApi()
    hooks: list[Object] = [{"name": "a", "clientConfig": {}}, {"name": "b", "clientConfig": {"caBundle": "b2xk"}}]
    found = {"metadata": {"resourceVersion": "7"}, "webhooks": hooks}
    fake.on("LIST", CONFIGURATION, reply(found))
    fake.on("PATCH", CONFIGURATION, reply(found))
    async with serving(fake) as api:
        configuration = WebhookConfiguration(api, "steelyard")
        assert await configuration.trust(b"pem")
        for hook in hooks:
            hook["clientConfig"]["caBundle"] = base64.b64encode(b"pem").decode()
        fake.again("LIST", CONFIGURATION, reply(found))
        assert await configuration.trust(b"pem")

    (body,) = fake.bodies("PATCH", CONFIGURATION)
    assert body[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert [each["path"] for each in body[1:]] == [f"/webhooks/{n}/clientConfig/caBundle" for n in (0, 1)]


async def test_without_a_configuration_there_is_nothing_to_keep() -> None:
    fake = FakeApi()
    fake.on("LIST", CONFIGURATION, refusal(404, "NotFound"))
    async with serving(fake) as api:
        assert not await WebhookConfiguration(api, "steelyard").trust(b"pem")


def listed(name: str, uid: str, **metadata: Any) -> Object:
    return {"metadata": {"namespace": "store", "name": name, "uid": uid, "resourceVersion": "1"} | metadata}


async def test_each_pod_without_its_sidecar_is_told_of_once() -> None:
    fake = FakeApi()
    pods = [
        listed("with", "u-1", annotations={"steelyard.dev/injected": "1"}),
        listed("without", "u-2"),
        listed("going", "u-3", deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    fake.on("LIST", "/api/v1/pods?steelyard.dev/inject=enabled", listing(*pods))
    fake.on("WATCH", "/api/v1/pods?steelyard.dev/inject=enabled", refusal(403, "Forbidden"))
    askers, told = Askers((None,)), []
    news: asyncio.Queue[Said] = asyncio.Queue()

    async with serving(fake) as api:
        reflector = Reflector(api, ASKING_PODS, asker_record, askers.table)
        tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(askers.report(news.put_nowait))]
        told.append(await asyncio.wait_for(news.get(), 5))
        askers.table.put(("store", "late"), asker_record(listed("late", "u-4")))
        told.append(await asyncio.wait_for(news.get(), 5))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert [(each.key, each.uid, each.reason, each.kind) for each in told] == [
        (("store", "without"), "u-2", "NotInjected", ("v1", "Pod")),
        (("store", "late"), "u-4", "NotInjected", ("v1", "Pod")),
    ]
    assert news.empty()
    assert askers.missing == 2
    assert askers.has("store", "with", "u-1")
    assert not askers.has("store", "with", "u-2")
    assert not askers.has("store", "going", "u-3")


class Account(NamedTuple):
    namespace: str
    account: str
    pod: str = ""
    pod_uid: str = ""


@asynccontextmanager
async def operator(*, injection: bool) -> AsyncIterator[Operator]:
    """One that has heard of a Sidecar, a Gateway and an External object, and of the pod `client`."""
    fake = FakeApi()
    proxies = Proxies(put=lambda _: None, gone=lambda _: None, synced=lambda: None, reports={})
    desired = Desired(children=lambda *_: [], shared=lambda *_: [])
    async with serving(fake) as api:
        scope = Scope(namespace="ours", identity="me", injection=injection)
        found = Operator(api, load, scope, proxies, desired)
        for mode in ("Sidecar", "Gateway", "External"):
            found.store.event("ADDED", balanced(mode.lower(), proxy={"mode": mode}))
        if found.askers is not None:
            found.askers.table.put(("store", "client"), Asker("u-1", injected=True))
        yield found


async def test_a_sidecar_is_served_its_namespaces_objects_whatever_their_mode_is_by_now() -> None:
    client = Account("store", "default", "client", "u-1")
    async with operator(injection=True) as found:
        for name in ("sidecar", "gateway", "external", "deleted"):
            assert await found.may_read(client, ("store", name))
        assert not await found.may_read(client, ("elsewhere", "sidecar"))


async def test_a_pod_that_does_not_ask_is_served_no_sidecars_object() -> None:
    async with operator(injection=True) as found:
        for stranger in (Account("store", "default"), Account("store", "default", "client", "u-2")):
            assert not await found.may_read(stranger, ("store", "sidecar"))
            assert not await found.may_read(stranger, ("store", "gateway"))
            assert await found.may_read(stranger, ("store", "external"))


async def test_without_injection_any_account_of_the_namespace_may_be_a_sidecars() -> None:
    async with operator(injection=False) as found:
        assert await found.may_read(Account("store", "default"), ("store", "sidecar"))
