"""Smooth weighted round robin: golden traces, exactness per period, and the O(1) form against the plain scan."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement
from math import gcd
from random import Random

import pytest

from controller.balancing.node import Node
from controller.balancing.picker import PickRequest
from controller.balancing.smooth import LONGEST, SmoothRotation
from tests.unit.balancing.oracles import PlainSmooth, naive_round_robin
from tests.unit.balancing.sets import names, sequence, some_nodes


def _rotation(weights: list[int], lags: list[float] | None = None) -> tuple[SmoothRotation, list[Node]]:
    nodes = some_nodes(len(weights))
    return SmoothRotation(nodes, dict(zip(nodes, weights, strict=True)), lags or [0.0] * len(nodes)), nodes


def _letters(weights: list[int], picks: int) -> str:
    rotation, nodes = _rotation(weights)
    letter = names(nodes)
    return "".join(letter[node] for node in sequence(rotation, picks))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [([4, 2, 1], "abacaba"), ([5, 1, 1], "aabacaa"), ([1, 1, 1], "abc"), ([3], "aaa"), ([2, 2], "abab")],
)
def test_the_golden_sequences(weights: list[int], expected: str) -> None:
    assert expected * 3 == _letters(weights, 3 * len(expected))


def test_the_values_of_4_2_1_after_each_pick() -> None:
    rotation, _ = _rotation([4, 2, 1])
    after = []

    for _ in range(7):
        rotation.pick(PickRequest(0.0))
        after.append([round(7 * rotation.lag(at)) for at in range(3)])

    assert after == [[-3, 2, 1], [1, -3, 2], [-2, -1, 3], [2, 1, -3], [-1, 3, -2], [3, -2, -1], [0, 0, 0]]


def test_counts_per_period_are_those_of_the_expanded_list() -> None:
    weights = [7, 3, 3, 2, 1]
    rotation, nodes = _rotation(weights)
    naive = Counter(naive_round_robin(dict(zip(nodes, weights, strict=True)), 16))

    for _ in range(5):
        assert naive == Counter(sequence(rotation, 16))


def test_the_sum_of_the_lags_is_constant_and_each_stays_in_bounds() -> None:
    """-W < current < 2W, as turns: the greatest excess seen in random vectors is 1.53."""
    random = Random(3)
    for _ in range(50):
        weights = [random.randint(1, 40) for _ in range(random.randint(2, 20))]
        rotation, _ = _rotation(weights)
        for _ in range(200):
            rotation.pick(PickRequest(0.0))
            lags = [rotation.lag(at) for at in range(len(weights))]
            assert abs(sum(lags)) < 1e-9
            assert all(-1 < lag < 2 for lag in lags)


def test_up_to_three_endpoints_never_deviate_by_a_turn() -> None:
    """All weights to 12; the worst is below 0.82."""
    for weights in combinations_with_replacement(range(1, 13), 3):
        if gcd(*weights) > 1:
            continue
        whole = sum(weights)
        plain, counts = PlainSmooth(weights), [0, 0, 0]
        rotation, nodes = _rotation(list(weights))
        for turn in range(1, whole + 1):
            picked = rotation.pick(PickRequest(0.0))
            assert nodes[plain.pick()] is picked
            counts[nodes.index(picked)] += 1
            assert all(abs(count - turn * weight / whole) < 1 for count, weight in zip(counts, weights, strict=True))


def test_more_endpoints_never_deviate_by_two_turns() -> None:
    random = Random(4)
    for _ in range(40):
        weights = [random.randint(1, 100) for _ in range(random.randint(4, 20))]
        whole = sum(weights)
        rotation, nodes = _rotation(weights)
        counts: Counter[Node] = Counter()
        for turn in range(1, 301):
            counts[rotation.pick(PickRequest(0.0))] += 1
            deviation = max(abs(counts[n] - turn * w / whole) for n, w in zip(nodes, weights, strict=True))
            assert deviation < 2


@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_equal_weights_hold_each_endpoint_once_in_every_window(size: int) -> None:
    rotation, nodes = _rotation([7] * size)
    picks = sequence(rotation, 3 * size)

    assert nodes == picks[:size], "from zero the first in order comes first"
    for start in range(2 * size):
        assert set(nodes) == set(picks[start : start + size])


@pytest.mark.parametrize("weights", [[1] * 6, [4, 2, 1], [9, 1, 1, 1], [5, 4, 3, 2, 1], [LONGEST, 3, 2]])
def test_what_is_remembered_equals_the_plain_scan_with_and_without_tried(weights: list[int]) -> None:
    """The repeated period is the scan's own, also after requests that skipped some, or had tried all."""
    random = Random(5)
    plain = PlainSmooth([1] * 6 if len(set(weights)) == 1 else weights)
    rotation, nodes = _rotation(weights)

    for _ in range(3000):
        skipped = random.sample(range(len(weights)), random.randint(1, len(weights))) if random.random() < 0.01 else []
        expected = nodes[plain.pick(skipped)]
        assert expected is rotation.pick(PickRequest(0.0, None, [nodes[at] for at in skipped]))


def test_equal_weights_with_uneven_lags_settle_into_the_plain_rotation() -> None:
    lags = [1.5, -1.0, 0.5, -1.0]
    plain = PlainSmooth([1] * 4)
    plain.current = [6, -4, 2, -4]
    rotation, nodes = _rotation([3] * 4, lags)

    picks = sequence(rotation, 40)

    assert [nodes[plain.pick()] for _ in range(40)] == picks
    assert picks[-8:-4] == picks[-4:]


def test_a_period_that_does_not_come_back_is_recorded_anew() -> None:
    """From lags off the cycle the first period is a transient; the second one repeats."""
    plain = PlainSmooth([4, 2, 1])
    plain.current = [-20, 10, 10]
    rotation, nodes = _rotation([4, 2, 1], [-20 / 7, 10 / 7, 10 / 7])

    assert [nodes[plain.pick()] for _ in range(70)] == sequence(rotation, 70)


def test_skipping_starts_later_in_the_same_sequence() -> None:
    for weights in ([4, 2, 1], [1, 1, 1, 1]):
        whole, _ = _rotation(weights)
        later, _ = _rotation(weights)
        later.skip(5)

        assert [n.id for n in sequence(whole, 20)[5:]] == [n.id for n in sequence(later, 15)]


def test_endpoints_skipped_neither_gain_nor_lose() -> None:
    rotation, nodes = _rotation([4, 2, 1])
    rotation.skip(3)
    before = rotation.lag(0)

    sequence(rotation, 6, tried=[nodes[0]])

    assert before == rotation.lag(0)
    assert sum(rotation.lag(at) for at in range(3)) == pytest.approx(0)


@pytest.mark.parametrize("size", [3, 7, 64])
def test_no_counter_grows_with_the_picks(size: int) -> None:
    """An index that overflows, or wraps where the size doesn't divide its range, skips somebody then."""
    rotation, nodes = _rotation([1] * size)
    counts = Counter(sequence(rotation, 1000 * size))

    assert set(counts.values()) == {1000}
    assert 0 <= rotation._position < size
    assert nodes[0] is rotation.pick(PickRequest(0.0))
