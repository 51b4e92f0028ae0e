"""ConsistentHash over groups and members: who moves, and that all workers agree."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.balancing.consistent_hash import ConsistentHashPicker
from controller.balancing.eligible import Rules, Source, eligible
from controller.balancing.maglev import Maglev
from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, PickRequest
from controller.balancing.rendezvous import Rendezvous
from controller.balancing.tables import Scheme
from controller.model.service import Algorithm, ConsistentHash
from tests.unit.balancing.sets import assert_shares, flat_set, group_of, hashing, picker_of, set_of, some_nodes

KEYS = [b"session-%d" % number for number in range(8000)]


def _homes(candidates: CandidateSet, table: Scheme = "Auto", seed: int = 1, keys: list[bytes] = KEYS) -> list[str]:
    picker = picker_of("ConsistentHash", candidates, seed, hashing(ConsistentHash(table=table, bounded_load=0)))
    return [picker.pick(PickRequest(0.0, key)).id for key in keys]


@pytest.mark.parametrize("table", ["Rendezvous", "Maglev", "Ring"])
def test_workers_agree_on_every_key_whatever_the_order_of_their_input(table: Scheme) -> None:
    here = flat_set(some_nodes(9), list(range(1, 10)))
    there = flat_set(list(reversed(some_nodes(9))), list(range(9, 0, -1)))

    assert _homes(here, table) == _homes(there, table, seed=77)


@pytest.mark.parametrize("table", ["Rendezvous", "Maglev", "Ring"])
def test_an_ejection_moves_only_its_own_keys_and_they_come_back(table: Scheme) -> None:
    nodes = some_nodes(8)
    before = _homes(flat_set(nodes), table)
    during = _homes(flat_set(nodes, ineligible=[nodes[3]]), table)

    assert {nodes[3].id} == {old for old, new in zip(before, during, strict=True) if old != new}
    assert nodes[3].id not in during
    assert before == _homes(flat_set(nodes), table)


def _backends(a: list[Node], b: list[Node]) -> CandidateSet:
    """Two `Backend`-weighted backends of equal weight: the siblings of a removed pod gain weight."""
    scale = 2520
    return set_of(group_of(a, [scale // len(a)] * len(a), "x"), group_of(b, [scale // len(b)] * len(b), "y"))


@pytest.mark.parametrize("table", ["Rendezvous", "Ring"])
@pytest.mark.parametrize("size", [2, 10])
def test_a_removal_inside_a_backend_moves_no_key_of_another(table: Scheme, size: int) -> None:
    """One flat weighted table moves 9.98 % of all keys with two backends of two pods."""
    a, b = some_nodes(size), some_nodes(size, first=100)
    before = _homes(_backends(a, b), table)
    after = _homes(_backends(a[1:], b), table)

    assert {a[0].id} == {old for old, new in zip(before, after, strict=True) if old != new}
    assert {node.id for node in a[1:]} >= {new for old, new in zip(before, after, strict=True) if old != new}


def test_a_backend_with_nothing_eligible_gives_its_keys_to_the_others() -> None:
    a, b = some_nodes(2), some_nodes(2, first=10)
    candidates = set_of(group_of(a, [9, 9], "x"), group_of(b, [1, 1], "y"), ineligible=a)

    assert {node.id for node in b} == set(_homes(candidates))


def test_shares_follow_the_backends_weights_and_the_endpoints_inside() -> None:
    a, b = some_nodes(3), some_nodes(2, first=10)
    candidates = set_of(group_of(a, [30, 30, 30], "x"), group_of(b, [5, 5], "y"))
    weights = {node.id: 30.0 for node in a} | {node.id: 5.0 for node in b}

    assert_shares(Counter(_homes(candidates)), weights)


def test_an_endpoint_in_two_backends_is_reached_through_either() -> None:
    a, b = some_nodes(2)
    candidates = set_of(group_of([a], [1], "x"), group_of([a, b], [1, 1], "y"))

    assert_shares(Counter(_homes(candidates)), {a.id: 2.0, b.id: 1.0})


def test_at_rest_a_key_goes_home_and_all_its_choices_follow_in_order() -> None:
    nodes = some_nodes(6)
    picker = picker_of("ConsistentHash", flat_set(nodes), options=hashing())
    tried: list[Node] = []
    for _ in nodes:
        tried.append(picker.pick(PickRequest(0.0, b"user-1", tried)))

    assert sorted(node.id for node in tried) == sorted(node.id for node in nodes)
    assert tried[0] is picker.pick(PickRequest(0.0, b"user-1"))


def test_when_all_are_tried_and_no_bound_is_set_the_key_goes_home() -> None:
    nodes = some_nodes(4)
    picker = picker_of("ConsistentHash", flat_set(nodes), options=hashing(ConsistentHash(bounded_load=0)))

    assert picker.pick(PickRequest(0.0, b"k")) is picker.pick(PickRequest(0.0, b"k", nodes))


def test_auto_is_chosen_by_each_groups_members_ineligible_ones_included() -> None:
    large, small = some_nodes(129), some_nodes(3, first=500)
    candidates = set_of(group_of(large, [1] * 129, "x"), group_of(small, [1] * 3, "y"), ineligible=large[:100])
    picker = picker_of("ConsistentHash", candidates, options=hashing())

    assert isinstance(picker, ConsistentHashPicker)
    assert [Maglev, Rendezvous] == [type(found) for found in picker._tables]


def test_a_request_without_a_key_goes_anywhere() -> None:
    nodes = some_nodes(4)
    picker = picker_of("ConsistentHash", flat_set(nodes), options=hashing())

    assert_shares(Counter(picker.pick(PickRequest(0.0)) for _ in range(4000)), dict.fromkeys(nodes, 1.0))


def test_rings_go_by_the_heaviest_weight_configured_whoever_is_there() -> None:
    """The heaviest backend of the pool loses its last endpoint: the light ones keep their points, and their keys."""
    light, heavy = some_nodes(3), some_nodes(1, first=50)
    rules = Rules(Algorithm(type="ConsistentHash", consistent_hash=ConsistentHash(table="Ring", bounded_load=0)))

    def homes(present: list[Node]) -> list[str]:
        sources = Source("light", 1, "Endpoint", 0, light), Source("heavy", 4, "Endpoint", 0, present)
        return _homes(eligible(sources, rules, 0.0).levels[0].candidates, "Ring")

    assert {heavy[0].id} == {old for old, new in zip(homes(heavy), homes([]), strict=True) if old != new}
