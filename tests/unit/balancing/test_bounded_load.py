"""Bounded load: the cap as the formula says, a running total that stays right, and the rule of last resort."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil
from random import Random

import pytest

from controller.balancing.bounded_load import OTHERS_AGE, Bound
from controller.balancing.node import Kind, Node, Total
from controller.balancing.picker import PickRequest
from controller.balancing.tables import Scheme
from controller.model.service import ConsistentHash
from tests.unit.balancing.sets import flat_set, group_of, hashing, picker_of, set_of, some_nodes


def _cap(nodes: dict[Node, int], node: Node, percent: int, least: int) -> int:
    in_flight = sum(other.load() for other in nodes)
    share = Fraction(nodes[node], sum(nodes.values()))
    return max(least, ceil(Fraction(percent, 100) * (in_flight + 1) * share))


def _attempts(random: Random, nodes: dict[Node, int], at_work: list[Node]) -> None:
    """Start or finish one attempt somewhere."""
    if at_work and random.random() < 0.45:
        at_work.pop(random.randrange(len(at_work))).finish(0.0, Kind.OK)
    else:
        node = random.choice(list(nodes))
        node.start(0.0)
        at_work.append(node)


@pytest.mark.parametrize("percent", [100, 110, 125, 200, 1000])
@pytest.mark.parametrize("least", [2, 4])
def test_admission_is_the_cap_of_the_formula(percent: int, least: int) -> None:
    random = Random(percent)
    nodes = dict(zip(some_nodes(6), [4, 3, 2, 2, 1, 1], strict=True))
    bound = Bound(nodes, percent, least, "0")
    at_work: list[Node] = []

    for step in range(1500):
        _attempts(random, nodes, at_work)
        if step % 300 == 0:
            for node in nodes:
                node.others = random.randint(0, 4)
        now = step * 2 * OTHERS_AGE
        admitted = [bound.admits(node, now) for node in nodes]
        assert admitted == [node.load() + 1 <= _cap(nodes, node, percent, least) for node in nodes]
        assert any(admitted), "the caps sum to more than the requests in flight"


def test_admission_stays_right_while_the_set_changes_under_requests_in_flight() -> None:
    """Nodes leave and come back, carrying attempts that an older total has counted."""
    random = Random(12)
    pool = some_nodes(6)
    at_work: list[Node] = []
    for _ in range(200):
        nodes = {node: random.randint(1, 3) for node in random.sample(pool, random.randint(1, 6))}
        bound = Bound(nodes, 125, 2, "0")
        for _ in range(random.randint(0, 12)):
            _attempts(random, dict.fromkeys(pool, 1), at_work)
            for node in nodes:
                assert bound.admits(node, 0.0) == (node.load() + 1 <= _cap(nodes, node, 125, 2))


def test_the_others_sum_is_read_at_most_every_five_milliseconds() -> None:
    nodes = dict.fromkeys(some_nodes(2), 1)
    one, two = nodes
    bound = Bound(nodes, 100, 1, "0")
    one.inflight = 1
    assert not bound.admits(one, 0.0)

    two.others = 5
    assert not bound.admits(one, OTHERS_AGE / 2)
    assert bound.admits(one, OTHERS_AGE)


def test_no_attempt_pays_for_a_total_that_nobody_needed() -> None:
    nodes = dict.fromkeys(some_nodes(3), 1)
    bound = Bound(nodes, 125, 2, "0")

    assert all(bound.admits(node, 0.0) for node in nodes)
    assert all(node.totals == () for node in nodes)

    next(iter(nodes)).inflight = 2
    bound.admits(next(iter(nodes)), 0.0)
    assert all(len(node.totals) == 1 for node in nodes)


def test_a_new_bound_takes_the_place_of_the_old_one_in_its_own_set_only() -> None:
    nodes = dict.fromkeys(some_nodes(2), 1)
    other = Total("1", 0)
    for node in nodes:
        node.totals = (other,)
        node.inflight = 3
    for _ in range(3):
        Bound(nodes, 125, 2, "0").admits(next(iter(nodes)), 0.0)

    for node in nodes:
        assert [total.scope for total in node.totals] == ["1", "0"]
        node.start(0.0)
    assert other.inflight == 2
    assert next(iter(nodes)).totals[1].inflight == 8


def test_off_means_any_load_is_admitted_and_the_first_choice_is_the_last_resort() -> None:
    nodes = dict.fromkeys(some_nodes(2), 1)
    busy, idle = nodes
    busy.inflight = 10**6
    bound = Bound(nodes, 0, 2, "0")

    assert bound.admits(busy, 0.0)
    assert busy is bound.least([busy, idle])


def test_one_hot_key_fills_no_endpoint_over_its_bound() -> None:
    """With no completions, and in the key's own order; the bound is exact, not the mean plus something."""
    nodes = some_nodes(10)
    picker = picker_of("ConsistentHash", flat_set(nodes), options=hashing(ConsistentHash(bounded_load=125)))
    by_node = dict.fromkeys(nodes, 1)

    for _ in range(500):
        cap = {node: _cap(by_node, node, 125, 2) for node in nodes}
        node = picker.pick(PickRequest(0.0, b"hot"))
        assert node.inflight + 1 <= cap[node]
        node.start(0.0)

    assert max(node.inflight for node in nodes) <= ceil(1.25 * 500 / 10)


@pytest.mark.parametrize("table", ["Rendezvous", "Maglev", "Ring"])
def test_the_first_candidate_that_qualifies_is_never_passed_over(table: Scheme) -> None:
    """Brute force over the key's order, which a picker without a bound shows by `tried`."""
    random = Random(11)
    weights = dict(zip(some_nodes(6), [3, 3, 2, 2, 1, 1], strict=True))
    nodes = list(weights)
    candidates = flat_set(nodes, list(weights.values()), ineligible=[nodes[5]])
    eligible = {node: weight for node, weight in weights.items() if node is not nodes[5]}
    plain = picker_of("ConsistentHash", candidates, options=hashing(ConsistentHash(table=table, bounded_load=0)))
    bounded = picker_of("ConsistentHash", candidates, options=hashing(ConsistentHash(table=table, bounded_load=125)))

    at_work: list[Node] = []
    for turn in range(1500):
        key = b"key-%d" % (turn % 40)
        tried = random.sample(nodes, random.randint(0, 3))
        order: list[Node] = []
        for _ in eligible:
            order.append(plain.pick(PickRequest(0.0, key, order)))
        open_nodes = [node for node in order if node not in tried and node.load() + 1 <= _cap(eligible, node, 125, 2)]
        expected = open_nodes[0] if open_nodes else None

        node = bounded.pick(PickRequest(0.0, key, tried))

        if expected is not None:
            assert expected is node
        else:
            left = [other for other in order if other not in tried] or order
            assert node is min(left, key=lambda other: Fraction(other.load(), eligible[other]))
        node.start(0.0)
        at_work.append(node)
        while at_work and random.random() < 0.47:
            at_work.pop(random.randrange(len(at_work))).finish(0.0, Kind.OK)


def test_when_all_are_tried_the_least_loaded_for_its_weight_is_picked() -> None:
    nodes = some_nodes(3)
    for node, load in zip(nodes, (8, 3, 4), strict=True):
        node.inflight = load
    picker = picker_of("ConsistentHash", flat_set(nodes, [4, 1, 1]), options=hashing())

    assert nodes[0] is picker.pick(PickRequest(0.0, b"any", nodes))


@pytest.mark.parametrize(("percent", "most"), [(110, 1.10), (125, 1.25), (200, 2.00)])
def test_twenty_thousand_keys_on_a_coarse_ring_stay_within_the_bound(percent: int, most: float) -> None:
    """Unbounded, rings this coarse put several times the mean on one endpoint."""
    nodes = some_nodes(20)
    weights = [1] * 19 + [160]  # one point for each of the light ones
    coarse = flat_set(nodes[:19], [1] * 19)
    free = picker_of("ConsistentHash", coarse, options=hashing(ConsistentHash(table="Ring", bounded_load=0)))
    ring = hashing(ConsistentHash(table="Ring", bounded_load=percent))
    picker = picker_of("ConsistentHash", flat_set(nodes, weights), options=ring)
    for number in range(4000):
        picker.pick(PickRequest(0.0, b"%d" % number)).start(0.0)

    loads = [node.inflight / (4000 * weight / 179) for node, weight in zip(nodes, weights, strict=True)]
    assert max(loads) <= most + 0.05
    assert len({free.pick(PickRequest(0.0, b"%d" % number)) for number in range(1000)}) == 19


def test_groups_are_bounded_over_the_whole_set() -> None:
    a, b = some_nodes(2), some_nodes(2, first=10)
    candidates = set_of(group_of(a, [45, 45], "x"), group_of(b, [5, 5], "y"))
    picker = picker_of("ConsistentHash", candidates, options=hashing(ConsistentHash(bounded_load=100)))

    for _ in range(200):
        picker.pick(PickRequest(0.0, b"hot")).start(0.0)

    assert Counter({node: node.inflight for node in (*a, *b)}) == {a[0]: 90, a[1]: 90, b[0]: 10, b[1]: 10}
