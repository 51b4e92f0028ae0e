"""Writers against a scripted API server: what is sent, with which force, and what is left alone."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from controller.kube.api import Api
from controller.kube.writers import APPLIED, NotLeadingError, Outcome, Writers, covers
from tests.component.fake_api import FakeApi, refusal, reply, serving

PATH = "/apis/apps/v1/namespaces/store/deployments/shop-lb"
OWNER = {"apiVersion": "steelyard.dev/v1alpha1", "kind": "BalancedService", "name": "shop"}


def reference(uid: str = "owner", controller: bool = True) -> dict[str, Any]:
    return OWNER | {"uid": uid} | ({"controller": True, "blockOwnerDeletion": True} if controller else {})


def deployment(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "store", "name": "shop-lb", "ownerReferences": [reference()]},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "proxy", "image": "p:1"}]}}} | spec,
    }


async def applied(request: web.Request) -> web.StreamResponse:
    """As the API server answers to an apply: what was sent, with what it fills in."""
    sent = await request.json()
    sent["metadata"] = {"uid": "child", "resourceVersion": "7"} | sent["metadata"]
    return await reply(sent)(request)


def live(fake: FakeApi, **metadata: Any) -> dict[str, Any]:
    """The child as the cache has it after the last apply: with defaults, an echo of what was sent."""
    found = copy.deepcopy(fake.bodies("PATCH", PATH)[-1])
    found["metadata"] |= {"uid": "child", "resourceVersion": "8"} | metadata
    found["spec"]["progressDeadlineSeconds"] = 600
    found["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = "/dev/termination-log"
    return found


async def put(writers: Writers, desired: dict[str, Any], known: dict[str, Any] | None = None) -> Outcome:
    return await writers.apply(await writers.look(desired, known, "owner"))


@pytest.fixture
def fake() -> FakeApi:
    fake = FakeApi()
    fake.on("PATCH", PATH, applied)
    return fake


@pytest.fixture
async def api(fake: FakeApi) -> AsyncIterator[Api]:
    async with serving(fake) as api:
        yield api


@pytest.fixture
def writers(api: Api) -> Writers:
    return Writers(api, lambda: 60.0)


async def test_a_new_child_is_applied_without_force(fake: FakeApi, writers: Writers) -> None:
    assert await put(writers, deployment()) == "written"

    verb, _, query, body = fake.asked[-1]
    assert (verb, query) == ("PATCH", {"fieldManager": "steelyard-children"})
    assert "uid" not in body["metadata"]


async def test_a_same_named_object_without_our_reference_is_never_written(fake: FakeApi, writers: Writers) -> None:
    fake.on("GET", PATH, reply({"metadata": {"namespace": "store", "name": "shop-lb", "uid": "theirs"}}))

    assert await put(writers, deployment()) == "conflict"
    assert fake.count("PATCH", PATH) == 0


async def test_a_field_of_someone_else_is_a_conflict(fake: FakeApi, writers: Writers) -> None:
    fake.again("PATCH", PATH, refusal(409, "Conflict"))

    assert await put(writers, deployment()) == "conflict"


async def test_a_known_child_is_applied_with_force_and_its_uid(fake: FakeApi, writers: Writers) -> None:
    await put(writers, deployment())

    assert await put(writers, deployment(replicas=3), live(fake)) == "written"

    _, _, query, body = fake.asked[-1]
    assert query == {"fieldManager": "steelyard-children", "force": "true"}
    assert body["metadata"]["uid"] == "child"


async def test_a_known_child_made_anew_under_our_hands_is_looked_at_later(fake: FakeApi, writers: Writers) -> None:
    await put(writers, deployment())
    fake.again("PATCH", PATH, refusal(409, "Conflict"))

    assert await put(writers, deployment(replicas=3), live(fake)) == "later"


async def test_what_is_as_it_should_be_is_not_written(fake: FakeApi, writers: Writers) -> None:
    await put(writers, deployment())

    assert await put(writers, deployment(), live(fake)) == "same"
    assert await put(Writers(writers._api, lambda: 60.0), deployment(), live(fake)) == "same"
    assert fake.count("PATCH", PATH) == 1


async def test_drift_and_a_field_left_out_are_written(fake: FakeApi, writers: Writers) -> None:
    await put(writers, deployment(paused=False))
    drifted = live(fake)
    drifted["spec"]["replicas"] = 5

    assert await put(writers, deployment(paused=False), drifted) == "written"
    assert await put(writers, deployment(), live(fake)) == "written"
    assert "paused" not in fake.asked[-1][3]["spec"]


async def test_a_child_that_is_being_deleted_gets_no_writes(fake: FakeApi, writers: Writers) -> None:
    await put(writers, deployment())
    deleting = live(fake, deletionTimestamp="2026-01-01T00:00:00Z")

    assert await put(writers, deployment(replicas=3), deleting) == "later"
    await writers.delete(deleting)
    assert fake.count("PATCH", PATH) == 1
    assert fake.count("DELETE", PATH) == 0


async def test_the_child_of_an_owner_that_was_made_anew_waits_for_its_collection(
    fake: FakeApi, writers: Writers
) -> None:
    await put(writers, deployment())
    former = live(fake, ownerReferences=[reference("earlier")])
    fake.on("GET", PATH, reply(former))

    assert await put(writers, deployment(), former) == "later"
    assert fake.count("PATCH", PATH) == 1


async def test_a_deletion_names_the_uid(fake: FakeApi, writers: Writers) -> None:
    await put(writers, deployment())
    fake.on("DELETE", PATH, refusal(409, "Conflict"))

    await writers.delete(live(fake))

    assert fake.bodies("DELETE", PATH)[0]["preconditions"] == {"uid": "child"}


async def test_who_lost_the_lease_writes_nothing(fake: FakeApi, api: Api) -> None:
    writers = Writers(api, lambda: 0.0)

    with pytest.raises(NotLeadingError):
        await put(writers, deployment())
    with pytest.raises(NotLeadingError):
        await writers.status(("store", "shop"), "owner", {})

    assert {verb for verb, *_ in fake.asked} <= {"GET", "LIST"}


async def test_a_digest_of_what_was_applied_stands_in_the_child(fake: FakeApi, writers: Writers) -> None:
    await put(writers, deployment())
    await put(writers, deployment(replicas=3), live(fake))

    first, second = (body["metadata"]["annotations"][APPLIED] for body in fake.bodies("PATCH", PATH))
    assert first != second


@pytest.mark.parametrize(
    ("live", "desired", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 2}, {"a": 1}, False),
        ([{"name": "x", "v": 1}, {"name": "y"}], [{"name": "y"}], True),
        ([{"type": "Ready", "status": "True"}], [{"type": "Ready", "status": "False"}], False),
        ([1, 2], [1], False),
        ([1, 2], (1, 2), True),
        ([], [{"name": "x"}], False),
        ({"a": None}, {"a": {}}, False),
    ],
)
def test_covers(live: object, desired: object, expected: bool) -> None:
    assert covers(live, desired) is expected
