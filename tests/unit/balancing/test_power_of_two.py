"""PowerOfTwoChoices: pairs without replacement, drawn by weight, compared by load over weight."""

from __future__ import annotations

import os
from collections import Counter
from itertools import permutations
from random import Random

import pytest

from controller.balancing.least_connections import LeastConnections
from controller.balancing.node import Node
from controller.balancing.picker import Picker, PickRequest
from controller.balancing.power_of_two import PowerOfTwoChoices
from tests.unit.balancing.sets import assert_shares, flat_set, picker_of, sequence, some_nodes


def _place(picker: Picker, count: int) -> None:
    for _ in range(count):
        picker.pick(PickRequest(0.0)).start(0.0)


interpreted = pytest.mark.skipif("STEELYARD_PACKAGE" in os.environ, reason="nothing derives from a compiled class")


class Watched(Node):
    """Writes down when its load is asked for: the two candidates of a pick, the first drawn first."""

    asked: list[Node]

    def load(self) -> int:
        self.asked.append(self)
        return super().load()


def _watched(count: int) -> tuple[list[Node], list[Node]]:
    asked: list[Node] = []
    nodes: list[Node] = []
    for node in some_nodes(count):
        watched = Watched(node.endpoint, 0.0)
        watched.asked = asked
        nodes.append(watched)
    return nodes, asked


@interpreted
@pytest.mark.parametrize("weights", [[1] * 6, [4, 3, 2, 2, 1, 1]])
def test_every_ordered_pair_is_drawn_as_often_as_it_should_be(weights: list[int]) -> None:
    """By weight without replacement; shifting on collision would let neighbours meet too often."""
    nodes, asked = _watched(6)
    picker = picker_of("PowerOfTwoChoices", flat_set(nodes, weights))
    whole = sum(weights)
    by_node = dict(zip(nodes, weights, strict=True))

    sequence(picker, 30_000)
    pairs = Counter(zip(asked[::2], asked[1::2], strict=True))

    expected = {(a, b): by_node[a] / whole * by_node[b] / (whole - by_node[a]) for a, b in permutations(nodes, 2)}
    assert_shares(pairs, expected)


@interpreted
@pytest.mark.parametrize("weights", [[1] * 10, [4, 4, 3, 2, 2, 1, 1]])
def test_the_picked_one_has_no_more_load_over_weight_than_the_other(weights: list[int]) -> None:
    nodes, asked = _watched(len(weights))
    by_node = dict(zip(nodes, weights, strict=True))
    random = Random(8)
    picker = picker_of("PowerOfTwoChoices", flat_set(nodes, weights))

    for _ in range(2000):
        for node in nodes:
            node.inflight = random.randint(0, 5)
        tried = random.sample(nodes, 2) if random.random() < 0.3 else []
        asked.clear()
        picked = picker.pick(PickRequest(0.0, None, tried))
        first, second = asked
        other = second if picked is first else first
        assert picked.inflight * by_node[other] <= other.inflight * by_node[picked]
        if picked.inflight * by_node[other] == other.inflight * by_node[picked]:
            assert picked is first, "a tie goes to the first drawn"


def test_at_rest_shares_are_the_weights() -> None:
    """With (f+1)/w a heavy endpoint would win every idle pair."""
    nodes = some_nodes(8)
    weights = [10, 5, 5, 3, 2, 1, 1, 1]

    counts = Counter(sequence(picker_of("PowerOfTwoChoices", flat_set(nodes, weights)), 40_000))

    assert_shares(counts, dict(zip(nodes, weights, strict=True)))


@pytest.mark.parametrize("size", [2, 3, 5, 20])
def test_the_strictly_busiest_is_never_picked(size: int) -> None:
    """With replacement the busier of two would still get a quarter."""
    nodes = some_nodes(size)
    nodes[1].inflight = 1

    assert nodes[1] not in sequence(picker_of("PowerOfTwoChoices", flat_set(nodes)), 2000)


@pytest.mark.parametrize(("size", "expected"), [(1, LeastConnections), (4, LeastConnections), (5, PowerOfTwoChoices)])
def test_up_to_four_endpoints_are_scanned(size: int, expected: type) -> None:
    assert expected is type(picker_of("PowerOfTwoChoices", flat_set(some_nodes(size))))


def test_the_fullest_of_a_thousand_bins_after_a_thousand_balls_holds_three() -> None:
    """Random draws give 4 to 9: ln ln n / ln 2 against ln n / ln ln n."""
    for seed in range(5):
        nodes = some_nodes(1000)
        _place(picker_of("PowerOfTwoChoices", flat_set(nodes), seed), 1000)
        assert max(node.inflight for node in nodes) == 3


def test_many_balls_lift_the_fullest_bin_by_two_or_three_over_the_mean() -> None:
    """Random draws give 31 to 35."""
    nodes = some_nodes(1000)
    _place(picker_of("PowerOfTwoChoices", flat_set(nodes)), 100_000)

    assert 2 <= max(node.inflight for node in nodes) - 100 <= 3


def test_at_saturation_load_follows_weight() -> None:
    nodes = some_nodes(10)
    weights = [8, 8, 4, 4, 4, 2, 2, 2, 1, 1]
    _place(picker_of("PowerOfTwoChoices", flat_set(nodes, weights)), 10_000)

    keys = [node.inflight / weight for node, weight in zip(nodes, weights, strict=True)]

    assert max(keys) / min(keys) <= 1.5


def test_tried_nodes_are_redrawn_until_one_is_left_and_then_ignored() -> None:
    nodes = some_nodes(6)
    for weights in ([1] * 6, [1000, 1000, 1000, 1000, 1, 1]):
        picker = picker_of("PowerOfTwoChoices", flat_set(nodes, weights))
        assert set(nodes[4:]) == set(sequence(picker, 500, tried=nodes[:4]))
        assert {nodes[5]} == set(sequence(picker, 50, tried=nodes[:5]))
        assert len(set(sequence(picker, 500, tried=nodes))) >= 4
