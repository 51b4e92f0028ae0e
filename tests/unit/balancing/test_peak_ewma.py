"""PeakEWMA's choice: latency times load over weight, two even draws."""

from __future__ import annotations

from collections import Counter
from math import e, log
from random import Random

import pytest

from controller.balancing.latency import Latency
from controller.balancing.node import Kind, Node
from controller.balancing.peak_ewma import PeakEwmaPicker
from controller.balancing.picker import PickRequest
from controller.model.service import PeakEwma
from tests.unit.balancing.sets import assert_shares, flat_set, picker_of, sequence, some_nodes

DECAY = 10.0


def _known(latencies: list[float]) -> list[Node]:
    nodes = some_nodes(len(latencies))
    for node, latency in zip(nodes, latencies, strict=True):
        node.ewma = latency
    return nodes


def test_an_idle_latency_falls_by_e_in_one_decay() -> None:
    nodes = _known([0.5])
    picker = PeakEwmaPicker({nodes[0]: 1}, DECAY, Random(1))

    assert picker._cost(0, DECAY) == pytest.approx(0.5 / e, rel=1e-9)
    assert nodes[0].ewma == pytest.approx(0.5 / e, rel=1e-9)
    assert nodes[0].stamp == DECAY


def test_load_and_latency_make_it_dearer_and_weight_cheaper() -> None:
    nodes = _known([0.010] * 4 + [0.020])
    nodes[1].inflight, nodes[2].others = 2, 1
    picker = PeakEwmaPicker(dict(zip(nodes, [1, 1, 1, 2, 1], strict=True)), DECAY, Random(1))

    assert pytest.approx([picker._cost(at, 0.0) for at in range(5)]) == [0.010, 0.030, 0.020, 0.005, 0.020]


def test_the_cheaper_of_two_is_picked_and_a_tie_goes_to_the_first_drawn() -> None:
    fast, slow = nodes = _known([0.010, 0.100])
    assert {fast} == set(sequence(picker_of("PeakEWMA", flat_set(nodes)), 50))

    slow.ewma = 0.010
    assert_shares(Counter(sequence(picker_of("PeakEWMA", flat_set(nodes)), 5000)), {fast: 1, slow: 1})


def test_a_node_without_a_sample_starts_at_the_median_of_the_known() -> None:
    nodes = _known([0.010, 0.030, 0.0])
    picker = PeakEwmaPicker(dict.fromkeys(nodes, 1), DECAY, Random(1))

    assert picker._cost(2, 0.0) == pytest.approx(0.020)
    assert nodes[2].ewma == pytest.approx(0.020)


@pytest.mark.parametrize(("others", "start"), [((3e11,), 5.0), ((3e11, 0.010), 0.010)])
def test_a_newcomer_does_not_inherit_the_pause_that_another_asked_for(others: tuple[float, ...], start: float) -> None:
    """An overloaded pod answers 503 with Retry-After, and is scaled up: the load goes to the new one."""
    nodes = _known([*others, 0.0])
    picker = PeakEwmaPicker(dict.fromkeys(nodes, 1), DECAY, Random(1))

    assert picker._cost(len(others), 0.0) == pytest.approx(start)


def test_without_any_sample_shares_are_even_and_load_decides() -> None:
    nodes = some_nodes(5)
    assert_shares(Counter(sequence(picker_of("PeakEWMA", flat_set(nodes)), 10_000)), dict.fromkeys(nodes, 1.0))

    nodes[0].inflight = 1
    assert nodes[0] not in sequence(picker_of("PeakEWMA", flat_set(nodes)), 500)


def test_equal_constant_latencies_give_the_shares_of_two_choices() -> None:
    nodes = some_nodes(10)
    latency = Latency(PeakEwma(), nodes)
    picker = picker_of("PeakEWMA", flat_set(nodes))
    counts: Counter[Node] = Counter()
    for turn in range(20_000):
        node = picker.pick(PickRequest(turn / 1000))
        counts[node] += 1
        latency.observe(node, turn / 1000, Kind.OK, 0.010, None)

    # The one picked last has not decayed yet and loses the next draw it is in, so counts spread less than binomially.
    assert_shares(counts, dict.fromkeys(nodes, 1.0))


def test_an_endpoint_that_fails_at_once_gets_a_twentieth_of_its_share_at_most() -> None:
    nodes = some_nodes(20)
    latency = Latency(PeakEwma(), nodes)
    picker = picker_of("PeakEWMA", flat_set(nodes))
    counts: Counter[Node] = Counter()
    for turn in range(40_000):
        now = turn / 200
        node = picker.pick(PickRequest(now))
        counts[node] += 1
        if node is nodes[0]:
            latency.observe(node, now, Kind.ERROR, 0.001, None)
        else:
            latency.observe(node, now, Kind.OK, 0.010, None)

    assert counts[nodes[0]] / (40_000 / 20) <= 0.05


def test_a_recovered_endpoint_is_picked_again_within_the_time_its_penalty_takes_to_fall() -> None:
    """1.5 tau ln(penalty / median)."""
    nodes = some_nodes(10)
    latency = Latency(PeakEwma(), nodes)
    picker = picker_of("PeakEWMA", flat_set(nodes))
    for node in nodes:
        latency.observe(node, 0.0, Kind.OK, 0.010, None)
    latency.observe(nodes[0], 0.0, Kind.ERROR, 0.001, None)
    assert nodes[0].ewma == pytest.approx(0.2)

    now = 0.0
    while (node := picker.pick(PickRequest(now))) is not nodes[0]:
        latency.observe(node, now, Kind.OK, 0.010, None)
        now += 0.005

    assert DECAY < now < 1.5 * DECAY * log(0.2 / 0.010)


def test_one_endpoint_is_returned_at_once() -> None:
    nodes = _known([0.010])
    picker = picker_of("PeakEWMA", flat_set(nodes))

    assert nodes * 3 == sequence(picker, 3)
    assert nodes == sequence(picker, 1, tried=nodes)


def test_tried_nodes_are_redrawn_until_one_is_left_and_then_ignored() -> None:
    nodes = some_nodes(4)
    picker = picker_of("PeakEWMA", flat_set(nodes))

    assert {nodes[2], nodes[3]} == set(sequence(picker, 100, tried=nodes[:2]))
    assert {nodes[3]} == set(sequence(picker, 20, tried=nodes[:3]))
    assert set(nodes) == set(sequence(picker, 200, tried=nodes))
