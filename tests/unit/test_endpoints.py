"""Records of Services, EndpointSlices and ReferenceGrants, made from raw JSON."""

from __future__ import annotations

import pytest

from controller.model.endpoints import (
    Endpoint,
    Grant,
    ServicePort,
    ServiceRecord,
    Slice,
    SliceEndpoint,
    SlicePort,
    State,
    fits_a_slice,
    grant_record,
    service_record,
    slice_record,
)


def test_a_service_record_holds_what_is_read() -> None:
    item = {
        "metadata": {"namespace": "store", "name": "shop", "uid": "u-1", "resourceVersion": "7"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.1",
            "ipFamilies": ["IPv6", "IPv4"],
            "trafficDistribution": "PreferClose",
            "ports": [
                {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"},
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "bare", "port": 81},
            ],
        },
    }

    record = service_record(item)

    assert record == ServiceRecord(
        namespace="store",
        name="shop",
        type="LoadBalancer",
        ports=(
            ServicePort(name="http", port=80, target_port="web"),
            ServicePort(name="bare", port=81, target_port=81),
        ),
        cluster_ip="10.96.0.1",
        families=("IPv6", "IPv4"),
    )
    assert record.key == ("store", "shop")


def test_a_service_without_a_spec_has_defaults() -> None:
    assert service_record({"metadata": {"namespace": "a", "name": "b"}}) == ServiceRecord(namespace="a", name="b")


@pytest.mark.parametrize(
    ("ingress", "expected"),
    [
        (None, ""),
        ([], ""),
        ([{"ip": "203.0.113.7"}], "203.0.113.7"),
        ([{"hostname": "lb.example"}], "lb.example"),
        ([{"ports": []}, {"ip": "203.0.113.8"}], "203.0.113.8"),
    ],
)
def test_a_load_balancers_address_is_read_once_it_has_one(ingress: object, expected: str) -> None:
    item = {"metadata": {"name": "b"}, "status": {"loadBalancer": {"ingress": ingress}}}

    assert service_record(item).ingress == expected


def test_a_headless_service_has_no_cluster_ip() -> None:
    item = {"metadata": {"name": "b"}, "spec": {"clusterIP": "None"}}

    record = service_record(item)

    assert (record.namespace, record.cluster_ip) == ("default", "")


def test_a_slice_record_holds_what_is_read() -> None:
    item = {
        "metadata": {"namespace": "store", "name": "shop-1", "labels": {"kubernetes.io/service-name": "shop"}},
        "addressType": "IPv6",
        "ports": [
            {"name": "http", "port": 80},
            {"name": None, "port": None},
            {"name": "udp", "port": 1, "protocol": "UDP"},
        ],
        "endpoints": [
            {
                "addresses": ["fd00::1", "fd00::2"],
                "conditions": {"ready": False, "serving": True, "terminating": True},
                "targetRef": {"kind": "Pod", "namespace": "store", "name": "shop-a", "uid": "pod-a"},
                "nodeName": "node-a",
                "zone": "eu-1",
                "hints": {"forZones": [{"name": "eu-2"}, {"name": "eu-1"}], "forNodes": [{"name": "node-a"}]},
            }
        ],
    }

    record = slice_record(item)

    assert record == Slice(
        namespace="store",
        name="shop-1",
        service="shop",
        address_type="IPv6",
        ports=(SlicePort(name="http", number=80), SlicePort(name="", number=None)),
        endpoints=(
            SliceEndpoint(
                address="fd00::1",
                ready=False,
                serving=True,
                terminating=True,
                uid="pod-a",
                pod="store/shop-a",
                node="node-a",
                zone="eu-1",
                zone_hints=("eu-1", "eu-2"),
                node_hints=("node-a",),
            ),
        ),
    )
    assert record.key == ("store", "shop")


def test_the_order_of_hints_makes_no_difference() -> None:
    def with_hints(*zones: str) -> dict[str, object]:
        hints = {"forZones": [{"name": zone} for zone in zones]}
        return {"metadata": {"name": "a"}, "endpoints": [{"addresses": ["10.0.0.1"], "hints": hints}]}

    assert slice_record(with_hints("a", "b")) == slice_record(with_hints("b", "a"))


@pytest.mark.parametrize(
    ("ready", "serving", "terminating", "state"),
    [
        (None, None, None, "ACTIVE"),
        (True, None, None, "ACTIVE"),
        (True, False, True, "ACTIVE"),
        (False, True, True, "DRAINING"),
        (False, True, None, "PARKED"),
        (False, None, True, "PARKED"),
        (False, False, False, "PARKED"),
    ],
)
def test_the_state_follows_the_conditions(
    ready: bool | None, serving: bool | None, terminating: bool | None, state: State
) -> None:
    endpoint = SliceEndpoint(address="10.0.0.1", ready=ready, serving=serving, terminating=terminating)

    assert endpoint.state == state


def test_a_grant_permits_the_sources_and_services_that_it_names() -> None:
    item = {
        "metadata": {"namespace": "open", "name": "g"},
        "spec": {
            "from": [{"group": "steelyard.dev", "kind": "BalancedService", "namespace": "store"}],
            "to": [{"group": "", "kind": "Secret"}, {"group": None, "kind": "Service", "name": "api"}],
        },
    }

    grant = grant_record(item)

    assert grant == Grant(
        namespace="open", name="g", sources=(("steelyard.dev", "BalancedService", "store"),), services=("api",)
    )
    assert grant.permits(("steelyard.dev", "BalancedService", "store"), "api")
    assert not grant.permits(("steelyard.dev", "BalancedService", "store"), "other")
    assert not grant.permits(("steelyard.dev", "BalancedService", "elsewhere"), "api")


@pytest.mark.parametrize(
    ("address", "fits"),
    [
        ("192.0.2.1", True),
        ("fd00::1", True),
        ("127.64.0.1", False),
        ("169.254.1.1", False),
        ("224.0.0.1", False),
        ("0.0.0.0", False),
        ("::1", False),
        ("fe80::1", False),
        ("no address", False),
    ],
)
def test_a_slice_holds_no_loopback_link_local_or_unspecified_address(address: str, fits: bool) -> None:
    assert fits_a_slice(address) == fits


def test_the_hash_identity_is_the_pods_name_where_there_is_a_pod() -> None:
    endpoint = Endpoint(id="pod-a", address="10.0.0.1", port=80, pod="store/a")

    assert endpoint.hash_identity("Pod") == "store/a:80"
    assert endpoint.hash_identity("Address") == "10.0.0.1:80"
    assert Endpoint(id="x", address="10.0.0.1", port=80).hash_identity("Pod") == "10.0.0.1:80"
