"""What the golden files don't show: large slices, operator settings, and rules that hold for every child."""

from __future__ import annotations

from typing import Any

import pytest

from controller.children import ChildSettings, children
from controller.model.endpoints import Endpoint
from controller.model.service import Backend, BalancedService, Mode, Port, Proxy
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.translate import Inputs, translate

SETTINGS = ChildSettings(image="proxy:1", control="https://operator")


def service(**proxy: Any) -> BalancedService:
    return BalancedService(
        namespace="store",
        name="shop",
        uid="u-1",
        ports=(Port(port=80), Port(name="mail", port=25, protocol="TCP")),
        backends=(Backend(name="a", addresses=("192.0.2.1",)), Backend(name="b", selector={"app": "shop"})),
        proxy=Proxy(**proxy),
    )


def owned(one: BalancedService, settings: ChildSettings = SETTINGS) -> tuple[dict[str, Any], ...]:
    result = translate(Inputs(objects={one.key: one}), one.key)
    assert result.snapshot is not None
    return children(one, result.snapshot, result.admitted, settings)


def the(kind: str, found: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    (one,) = [child for child in found if child["kind"] == kind]
    return one


@pytest.mark.parametrize("mode", ["Gateway", "Sidecar", "External"])
def test_every_child_is_owned_named_once_and_free_of_nulls(mode: Mode) -> None:
    found = owned(service(mode=mode))

    assert len({(child["kind"], child["metadata"]["name"]) for child in found}) == len(found)
    for child in found:
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("u-1", True, True)
        assert child["metadata"]["namespace"] == "store"
        assert child["metadata"]["labels"]["steelyard.dev/balancedservice"] == "shop"
        assert "None" not in repr(child).replace("'None'", "")


def test_a_change_of_ports_rolls_no_pod() -> None:
    one = service()
    other = BalancedService(namespace="store", name="shop", uid="u-1", ports=(Port(port=8443),), backends=one.backends)

    assert the("Deployment", owned(one)) == the("Deployment", owned(other))


def test_the_operators_settings_stand_where_the_object_says_nothing() -> None:
    settings = ChildSettings(
        image="proxy:1",
        control="https://operator",
        image_pull_secrets=("registry", "mirror"),
        priority_class_name="lower",
        resources={"requests": {"memory": "64Mi"}},
    )

    plain = the("Deployment", owned(service(), settings))["spec"]["template"]["spec"]
    told = the(
        "Deployment",
        owned(
            service(priority_class_name="higher", image_pull_secrets=({"name": "mine"}, {"name": "mirror"})), settings
        ),
    )["spec"]["template"]["spec"]

    assert plain["priorityClassName"] == "lower"
    assert plain["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]
    assert plain["containers"][0]["resources"] == {"requests": {"memory": "64Mi"}}
    assert told["priorityClassName"] == "higher"
    assert told["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}, {"name": "mine"}]


def snapshot(endpoints: tuple[Endpoint, ...]) -> Snapshot:
    backend = SnapshotBackend(name="a", weight=1, weight_per="Backend", endpoints=endpoints)
    port = SnapshotPort(name="http", port=80, listen=80, backends=(backend,))
    return Snapshot(namespace="store", name="shop", mode="Sidecar", ports=(port,))


def slices(endpoints: tuple[Endpoint, ...]) -> list[dict[str, Any]]:
    found = children(service(mode="Sidecar"), snapshot(endpoints), ("http",), SETTINGS)
    return [child for child in found if child["kind"] == "EndpointSlice"]


def test_a_slice_holds_at_most_a_thousand_endpoints() -> None:
    endpoints = tuple(
        Endpoint(id=f"p-{index:04}", address=f"10.0.{index // 256}.{index % 256}", port=80) for index in range(1001)
    )

    found = slices(endpoints)

    assert [len(piece["endpoints"]) for piece in found] == [1000, 1]
    assert len({piece["metadata"]["name"] for piece in found}) == 2


def test_slices_are_the_same_whatever_the_order_of_endpoints() -> None:
    endpoints = (
        Endpoint(id="b", address="10.0.0.2", port=80, zone="eu-1", zone_hints=("eu-1",)),
        Endpoint(id="a", address="10.0.0.1", port=80),
    )

    assert slices(endpoints) == slices(endpoints[::-1])


def test_hints_of_the_backends_slices_are_handed_on() -> None:
    (piece,) = slices((Endpoint(id="b", address="10.0.0.2", port=80, zone="eu-1", zone_hints=("eu-1", "eu-2")),))

    assert piece["endpoints"][0]["hints"] == {"forZones": [{"name": "eu-1"}, {"name": "eu-2"}]}


def test_a_service_of_pods_keeps_what_its_slices_say() -> None:
    (piece,) = slices((Endpoint(id="uid", address="10.0.0.2", port=80, pod="store/shop-1", node="n"),))

    assert piece["endpoints"][0]["targetRef"] == {"kind": "Pod", "namespace": "store", "name": "shop-1", "uid": "uid"}
