"""LeastConnections: the chosen key is minimal, ties are drawn by weight."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from random import Random

import pytest

from controller.balancing.node import Node
from controller.balancing.picker import Picker, PickRequest
from tests.unit.balancing.sets import assert_shares, flat_set, picker_of, sequence, some_nodes


def _loaded(loads: list[int]) -> list[Node]:
    nodes = some_nodes(len(loads))
    for node, load in zip(nodes, loads, strict=True):
        node.inflight = load
    return nodes


def _place(picker: Picker, count: int) -> None:
    for _ in range(count):
        picker.pick(PickRequest(0.0)).start(0.0)


def test_the_least_load_over_weight_wins_by_brute_force() -> None:
    random = Random(7)
    for _ in range(500):
        size = random.randint(1, 9)
        equal = random.random() < 0.3
        weights = [1] * size if equal else [random.randint(1, 12) for _ in range(size)]
        nodes = _loaded([random.randint(0, 12) for _ in range(size)])
        for node in nodes:
            node.others = random.randint(0, 3)
        tried = random.sample(nodes, random.randint(0, size))
        keys = {node: Fraction(node.load(), weight) for node, weight in zip(nodes, weights, strict=True)}
        left = {node: key for node, key in keys.items() if node not in tried} or keys

        picked = picker_of("LeastConnections", flat_set(nodes, weights), random.randrange(99)).pick(
            PickRequest(0, None, tried)
        )

        assert picked in left
        assert keys[picked] == min(left.values())


def test_one_request_at_a_time_gives_shares_by_weight() -> None:
    """Taking the first of equals would give everything to one endpoint."""
    for weights in ([1] * 10, [4, 3, 2, 1]):
        nodes = some_nodes(len(weights))
        counts = Counter(sequence(picker_of("LeastConnections", flat_set(nodes, weights)), 20_000))
        assert_shares(counts, dict(zip(nodes, weights, strict=True)))


def test_ties_are_drawn_by_weight_among_the_tied_only() -> None:
    nodes = _loaded([8, 4, 2, 9])
    weights = [4, 2, 1, 1]

    counts = Counter(sequence(picker_of("LeastConnections", flat_set(nodes, weights)), 14_000))

    assert_shares(counts, {nodes[0]: 4, nodes[1]: 2, nodes[2]: 1})
    assert counts[nodes[3]] == 0


@pytest.mark.parametrize("weights", [[1, 1, 1, 1, 1], [5, 3, 1], [10, 7, 2, 2]])
def test_without_completions_the_spread_stays_within_one_request(weights: list[int]) -> None:
    nodes = some_nodes(len(weights))
    picker = picker_of("LeastConnections", flat_set(nodes, weights))

    for _ in range(200):
        _place(picker, 1)
        keys = [Fraction(node.inflight, weight) for node, weight in zip(nodes, weights, strict=True)]
        assert max(keys) - min(keys) <= Fraction(1, min(weights))


def test_the_other_workers_requests_count() -> None:
    nodes = some_nodes(2)
    nodes[0].others = 5

    assert {nodes[1]} == set(sequence(picker_of("LeastConnections", flat_set(nodes)), 20))
