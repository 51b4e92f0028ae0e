"""`parse`: conditional defaults, and faults that are complete and name the mend."""

from __future__ import annotations

import math
from typing import Any

import pytest

from controller.model.parsing import encode, parse
from controller.model.service import BalancedService, Fault, HashOn, Invalid


def an_object(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "steelyard.dev/v1alpha1",
        "kind": "BalancedService",
        "metadata": {"name": "shop", **metadata},
        "spec": {"ports": [{"port": 80}], "backends": [{"name": "a", "service": {"name": "shop-v1"}}], **(spec or {})},
    }


def parsed(spec: dict[str, Any] | None = None, **metadata: Any) -> BalancedService:
    service = parse(an_object(spec, **metadata))
    assert isinstance(service, BalancedService), service
    return service


def faults(given: object) -> dict[str, str]:
    invalid = parse(given)
    assert isinstance(invalid, Invalid)
    return {fault.path: fault.message for fault in invalid.faults}


def test_metadata_is_taken_over() -> None:
    service = parsed(namespace="store", uid="u-1", generation=7, deletionTimestamp="2026-01-01T00:00:00Z")

    assert service.key == ("store", "shop")
    assert (service.uid, service.generation, service.deleting) == ("u-1", 7, True)


def test_an_object_of_a_file_has_neither_uid_nor_generation() -> None:
    service = parsed(generation="many")

    assert (service.namespace, service.uid, service.generation, service.deleting) == ("default", "", 0, False)


def test_addresses_are_weighted_by_the_endpoint_and_all_else_by_the_backend() -> None:
    service = parsed(
        {
            "backends": [
                {"name": "a", "addresses": ["192.0.2.1"]},
                {"name": "b", "addresses": ["192.0.2.1"], "weightPer": "Backend"},
                {"name": "c", "hostname": "shop.example.com"},
            ]
        }
    )

    assert [backend.weight_per for backend in service.backends] == ["Endpoint", "Backend", "Backend"]


def test_addresses_are_brought_to_one_writing_and_named_once() -> None:
    service = parsed({"backends": [{"name": "a", "addresses": ["2001:DB8::1", "2001:db8:0::1", "192.0.2.1"]}]})

    assert service.backends[0].addresses == ("2001:db8::1", "192.0.2.1")


@pytest.mark.parametrize(
    ("proxy", "policy", "grace"),
    [
        ({}, None, 5.0),
        ({"serviceType": "ClusterIP"}, None, 5.0),
        ({"serviceType": "NodePort"}, "Cluster", 5.0),
        ({"serviceType": "NodePort", "externalTrafficPolicy": "Local"}, "Local", 5.0),
        ({"serviceType": "LoadBalancer"}, "Local", 30.0),
        ({"serviceType": "LoadBalancer", "externalTrafficPolicy": "Cluster"}, "Cluster", 5.0),
        ({"serviceType": "LoadBalancer", "acceptGrace": "1s"}, "Local", 1.0),
    ],
)
def test_the_traffic_policy_and_the_grace_follow_the_service_type(
    proxy: dict[str, Any], policy: str | None, grace: float
) -> None:
    service = parsed({"proxy": proxy})

    assert (service.proxy.external_traffic_policy, service.proxy.accept_grace) == (policy, grace)


def test_an_active_check_asks_for_the_object_by_its_name_unless_told() -> None:
    hosts = [parsed({"health": {"active": active}}).health.active for active in ({}, {"host": "example.com"}, None)]

    assert [active and active.host for active in hosts] == ["shop", "example.com", None]


def test_the_hash_key_is_the_client_address_unless_told() -> None:
    service = parsed({"algorithm": {"type": "ConsistentHash"}})

    assert service.algorithm.hash_on == (HashOn(client_address=True),)


def test_status_codes_may_be_numbers_or_words() -> None:
    service = parsed(
        {"health": {"active": {"expectedStatuses": [200, "204", "300-399"]}}, "retries": {"conditions": [503, "Reset"]}}
    )

    assert service.health.active is not None
    assert service.health.active.expected_statuses == ("200", "204", "300-399")
    assert service.retries.conditions == (503, "Reset")


def test_every_fault_is_collected() -> None:
    found = faults(
        an_object(
            {
                "ports": [{"port": 0}, {"name": "b", "protocol": "UDP"}],
                "backends": [{"name": "A", "weight": -1}, {"name": "b", "service": {}}],
                "timeouts": {"connect": "fast"},
                "algoritm": {},
            }
        )
    )

    assert set(found) == {
        "spec.ports[0].port",
        "spec.ports[1].port",
        "spec.ports[1].protocol",
        "spec.backends[0]",
        "spec.backends[0].name",
        "spec.backends[0].weight",
        "spec.backends[1].service.name",
        "spec.timeouts.connect",
        "spec.algoritm",
    }


def test_one_field_can_break_two_rules() -> None:
    invalid = parse(
        an_object(
            {
                "ports": [{"name": "a", "port": 1, "protocol": "TCP", "targetPort": "web"}, {"name": "b", "port": 2}],
                "backends": [{"name": "a", "addresses": ["192.0.2.1"]}, {"name": "b", "hostname": "a.b", "port": 5}],
                "affinity": {"cookie": {}},
                "algorithm": {"type": "ConsistentHash", "hashOn": [{"path": True}]},
            }
        )
    )

    assert isinstance(invalid, Invalid)
    assert [fault.path for fault in invalid.faults] == [
        "spec.backends",
        "spec.ports",
        "spec.affinity",
        "spec.algorithm.hashOn",
    ]


FAULTS: dict[str, tuple[dict[str, Any], str]] = {  # by the path: what is written, and what is said of it
    "spec.backends": ({"backends": []}, "must have 1 to 64 entries, not 0"),
    "spec.health": ({"health": [1]}, "must be a mapping, not [1]"),
    "spec.proxy.tolerations": ({"proxy": {"tolerations": {}}}, "must be a list, not {}"),
    "spec.retries.attempts": ({"retries": {"attempts": True}}, "must be a whole number from 0 to 10, not true"),
    "spec.retries.nonIdempotent": ({"retries": {"nonIdempotent": 1}}, "must be true or false, not 1"),
    "spec.retries.conditions[0]": (
        {"retries": {"conditions": ["503"]}},
        "conditions must be ConnectFailure, Reset, 429, 502, 503 or 504, the codes without quotes",
    ),
    "spec.retries.maxBodyBytes": (
        {"retries": {"maxBodyBytes": 1.5}},
        "must be a whole number from 0 to 16777216, not 1.5",
    ),
    "spec.locality.near": ({"locality": {"near": "Zone"}}, "is not a field; here are prefer"),
    "spec.locality.prefer": (
        {"locality": {"prefer": "Rack"}},
        'must be one of Service, None, Zone, Node, not "Rack"',
    ),
    "spec.timeouts.connect": (
        {"timeouts": {"connect": 5}},
        "must be a duration such as 500ms, 30s or 1h30m, not 5",
    ),
    "spec.timeouts.idle": ({"timeouts": {"idle": "25h"}}, "idle must be from 1ms to 24h"),
    "spec.health.slowStart.aggression": (
        {"health": {"slowStart": {"aggression": math.nan}}},
        "must be a number from 0.1 to 10, not null",
    ),
    "spec.proxy.podLabels.True": (
        {"proxy": {"podLabels": {True: "x"}}},
        "must have a string as its key: put it in quotes",
    ),
    "spec.proxy.podLabels": ({"proxy": {"podLabels": 7}}, "must be a mapping, not 7"),
    "spec.proxy.nodeSelector": (
        {"proxy": {"nodeSelector": {str(number): "x" for number in range(33)}}},
        "must have 0 to 32 entries, not 33",
    ),
    "spec.health.active.path": (
        {"health": {"active": {"path": "x" * 200}}},
        f'must be a path without spaces, at most 1024 characters, not "{"x" * 56}...',
    ),
    "spec.health.active.host": (
        {"health": {"active": {"host": object()}}},
        "must be a host, at most 260 characters, not a value of type object",
    ),
    "spec.algorithm.hashOn[0].path": (
        {"algorithm": {"type": "ConsistentHash", "hashOn": [{"path": False}]}},
        "must be true or absent, not false",
    ),
    "spec.ports[1]": (
        {"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]},
        '"a" is already taken by spec.ports[0]: change one',
    ),
}


@pytest.mark.parametrize("path", FAULTS)
def test_a_fault_names_the_field_and_the_mend(path: str) -> None:
    spec, message = FAULTS[path]

    assert faults(an_object(spec)) == {path: message}


def test_a_secret_is_not_repeated_in_its_fault() -> None:
    found = faults(an_object({"proxy": {"debugKey": "open sesame"}}))

    assert found == {"spec.proxy.debugKey": "must be 1 or more visible ASCII characters, at most 128 characters"}


def test_a_whole_number_may_have_a_point() -> None:
    assert parsed({"ports": [{"port": 80.0}]}).ports[0].port == 80


def test_the_objects_own_service_is_a_loop_in_a_gateway_only() -> None:
    own = {"backends": [{"name": "a", "service": {"name": "shop"}}]}

    assert set(faults(an_object(own))) == {"spec.backends"}
    assert parsed({**own, "proxy": {"mode": "External"}}).proxy.mode == "External"


@pytest.mark.parametrize("given", [None, 7, "text", [], [{}]])
def test_what_is_no_mapping_is_one_fault(given: object) -> None:
    (message,) = faults(given).values()

    assert message.startswith("must be a mapping with apiVersion, kind, metadata and spec")


def test_an_empty_object_lacks_name_and_spec() -> None:
    assert set(faults({})) == {"metadata.name", "spec"}


def test_the_parts_around_the_spec_are_checked() -> None:
    given = an_object() | {"apiVersion": "v1", "kind": "Service", "extra": 1, "metadata": {"nmae": "x", "name": 5}}

    assert set(faults(given)) == {"extra", "apiVersion", "kind", "metadata.nmae", "metadata.name"}
    assert faults(an_object() | {"metadata": "shop"})["metadata"] == 'must be a mapping, not "shop"'
    assert set(faults(an_object(namespace="My Shop"))) == {"metadata.namespace"}


def test_an_item_of_a_list_needs_no_kind() -> None:
    given = {name: value for name, value in an_object().items() if name not in ("apiVersion", "kind")}

    assert isinstance(parse(given), BalancedService)


def test_an_invalid_object_keeps_its_name_for_whom_to_tell() -> None:
    invalid = parse(an_object({"ports": []}, namespace="store"))

    assert invalid == Invalid("store", "shop", (Fault("spec.ports", "must have 1 to 16 entries, not 0"),))


def test_encode_writes_only_the_options_of_the_type_in_force() -> None:
    written = {
        kind: set(encode(parsed({"algorithm": {"type": kind}}))["spec"]["algorithm"])
        for kind in ("RoundRobin", "PeakEWMA", "ConsistentHash")
    }

    assert written == {
        "RoundRobin": {"type"},
        "PeakEWMA": {"type", "peakEWMA"},
        "ConsistentHash": {"type", "consistentHash", "hashOn"},
    }


def test_encode_gives_back_what_was_written() -> None:
    spec = {
        "ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "HTTP"}],
        "backends": [
            {
                "name": "a",
                "selector": {"matchLabels": {"app": "shop"}},
                "weight": 1,
                "weightPer": "Backend",
                "priority": 0,
            }
        ],
        "algorithm": {"type": "ConsistentHash", "hashOn": [{"header": "X-User"}, {"clientAddress": True}]},
        "timeouts": {"response": "1h30m", "connect": "250ms"},
    }

    written = encode(parsed(spec, uid="u-1", generation=2))

    assert written["metadata"] == {"name": "shop", "namespace": "default", "uid": "u-1", "generation": 2}
    assert written["spec"]["ports"] == spec["ports"]
    assert written["spec"]["backends"] == spec["backends"]
    assert written["spec"]["algorithm"]["hashOn"] == spec["algorithm"]["hashOn"]
    assert written["spec"]["timeouts"] | spec["timeouts"] == written["spec"]["timeouts"]
