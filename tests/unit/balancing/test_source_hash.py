"""SourceHash: golden vectors, and what moves when an endpoint becomes unavailable."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address

import pytest
from xxhash import xxh64_intdigest

from controller.balancing.node import Node
from controller.balancing.picker import PickRequest
from tests.unit.balancing.sets import assert_shares, flat_set, group_of, picker_of, set_of, some_nodes

KEYS = [number.to_bytes(4, "big") for number in range(0x0A000000, 0x0A000000 + 3000)]


@pytest.mark.parametrize(
    ("key", "digest", "expected"),
    [
        (ip_address("192.0.2.1").packed, "9c3163f48c1ed6ff", [3, 3, 4, 1]),
        (ip_address("203.0.113.9").packed, "3cd5feb722cd979b", [1, 1, 1, 1]),
        (ip_address("2001:db8::1").packed[:8], "14082ee0972bc6f0", [1, 4, 2, 4]),
        (ip_address("2001:db8::2").packed[:8], "14082ee0972bc6f0", [1, 4, 2, 4]),
    ],
)
def test_the_golden_vectors(key: bytes, digest: str, expected: list[int]) -> None:
    """Endpoint numbers by attempt: each attempt is seen once its forerunners have been tried."""
    nodes = some_nodes(5)
    picker = picker_of("SourceHash", flat_set(nodes))
    order = list(dict.fromkeys(expected))
    tried: list[Node] = []

    for number in order:
        assert nodes[number - 1] is picker.pick(PickRequest(0.0, key, tried))
        tried.append(nodes[number - 1])
    assert f"{xxh64_intdigest(key):016x}" == digest


def _homes(candidates_seed: int, nodes: list[Node], ineligible: list[Node]) -> dict[bytes, str]:
    picker = picker_of("SourceHash", flat_set(nodes, ineligible=ineligible), candidates_seed)
    return {key: picker.pick(PickRequest(0.0, key)).id for key in KEYS}


def test_the_same_key_goes_to_the_same_endpoint_in_every_worker() -> None:
    assert _homes(1, some_nodes(7), []) == _homes(2, list(reversed(some_nodes(7))), [])


def test_an_ejection_moves_only_its_own_keys_and_they_come_back() -> None:
    nodes = some_nodes(6)
    before = _homes(1, nodes, [])
    during = _homes(1, nodes, [nodes[2]])

    assert {nodes[2].id} == {before[key] for key in KEYS if before[key] != during[key]}
    assert nodes[2].id not in during.values()
    assert before == _homes(1, nodes, [])
    moved = Counter(during[key] for key in KEYS if before[key] == nodes[2].id)
    assert len(moved) == 5, "the rest share them"


def test_shares_are_the_weights_with_one_group_and_with_two() -> None:
    a, b, c, d = some_nodes(4)
    one = flat_set([a, b, c], [5, 3, 2])
    two = set_of(group_of([a, b], [45, 45], "x"), group_of([c, d], [5, 5], "y"))

    for candidates, weights in ((one, {a: 5, b: 3, c: 2}), (two, {a: 9, b: 9, c: 1, d: 1})):
        picker = picker_of("SourceHash", candidates)
        counts = Counter(picker.pick(PickRequest(0.0, key)) for key in KEYS)
        assert_shares(counts, weights)


def test_two_backends_of_two_pods_use_all_four() -> None:
    """One hash modulo two twice would use half of them."""
    nodes = some_nodes(4)
    picker = picker_of("SourceHash", set_of(group_of(nodes[:2], [1, 1], "x"), group_of(nodes[2:], [1, 1], "y")))

    assert_shares(Counter(picker.pick(PickRequest(0.0, key)) for key in KEYS), dict.fromkeys(nodes, 1.0))


def test_a_change_of_scale_moves_nothing() -> None:
    a, b, c = some_nodes(3)
    small = picker_of("SourceHash", set_of(group_of([a, b], [1, 2], "x"), group_of([c], [1], "y")))
    large = picker_of("SourceHash", set_of(group_of([a, b], [7, 14], "x"), group_of([c], [7], "y")))

    assert all(small.pick(PickRequest(0.0, key)) is large.pick(PickRequest(0.0, key)) for key in KEYS)


def test_indices_stay_in_range_with_the_top_bit_of_the_hash_set() -> None:
    """Signed hash codes give negative indices; this key's hash has the top bit set."""
    key = ip_address("192.0.2.1").packed
    assert xxh64_intdigest(key) >> 63

    for size in range(1, 40):
        nodes = some_nodes(size)
        target = sorted(node.id for node in nodes)[xxh64_intdigest(key) % size]
        assert target == picker_of("SourceHash", flat_set(nodes)).pick(PickRequest(0.0, key)).id


def test_after_twenty_attempts_the_circle_is_walked() -> None:
    """One light eligible endpoint among heavy unavailable ones: hardly any attempt finds it."""
    nodes = some_nodes(5)
    weights = [1000, 1000, 1, 1000, 1]
    picker = picker_of("SourceHash", flat_set(nodes, weights, ineligible=[nodes[0], nodes[1], nodes[3]]))

    found = Counter(picker.pick(PickRequest(0.0, key)) for key in KEYS[:300])

    assert {nodes[2], nodes[4]} == set(found)
    assert nodes[4] is picker.pick(PickRequest(0.0, KEYS[0], [nodes[2]]))
    assert picker.pick(PickRequest(0.0, KEYS[0], [nodes[2], nodes[4]])) in (nodes[2], nodes[4])


def test_a_request_without_a_key_goes_anywhere() -> None:
    nodes = some_nodes(4)
    picker = picker_of("SourceHash", flat_set(nodes))

    assert_shares(Counter(picker.pick(PickRequest(0.0)) for _ in range(4000)), dict.fromkeys(nodes, 1.0))


def test_a_hundred_sidecars_spread_by_their_pods_addresses() -> None:
    """By the loopback peer they would all be one client."""
    nodes = some_nodes(10)
    picker = picker_of("SourceHash", flat_set(nodes))
    pods = [ip_address(f"10.1.0.{number}").packed for number in range(1, 101)]

    assert_shares(Counter(picker.pick(PickRequest(0.0, pod)) for pod in pods), dict.fromkeys(nodes, 1.0))
