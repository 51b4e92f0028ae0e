"""What PeakEWMA learns from an attempt: peaks at once, falls by time, and failures made dear."""

from __future__ import annotations

from math import e, exp

import pytest

from controller.balancing.latency import UNKNOWN, Latency, median
from controller.balancing.node import Kind, Node
from controller.model.service import PeakEwma
from tests.unit.balancing.sets import some_nodes

DECAY = 10.0


def _learning(count: int, terms: PeakEwma = PeakEwma()) -> tuple[Latency, list[Node]]:  # noqa: B008 - immutable
    nodes = some_nodes(count)
    latency = Latency(terms, nodes)
    for node in nodes:
        node.observers = (latency.observe,)
    return latency, nodes


def test_a_slower_answer_counts_in_full_at_once() -> None:
    _, (node,) = _learning(1)
    node.answered(1.0, Kind.OK, 0.010)
    node.answered(2.0, Kind.OK, 0.250)

    assert node.ewma == 0.250
    assert node.stamp == 2.0


def test_a_faster_answer_counts_by_the_time_passed() -> None:
    _, (node,) = _learning(1)
    node.answered(1.0, Kind.OK, 0.250)
    node.answered(1.0 + DECAY, Kind.OK, 0.010)

    assert node.ewma == pytest.approx(0.250 / e + 0.010 * (1 - 1 / e), rel=1e-9)


def test_the_latency_is_learnt_at_the_head_and_not_again_at_the_end() -> None:
    _, (node,) = _learning(1)
    node.start(0.0)
    node.answered(0.02, Kind.OK, 0.02)
    node.finish(3600.0, Kind.OK)

    assert node.ewma == 0.02


@pytest.mark.parametrize("kind", [Kind.ERROR, Kind.PUSHBACK, Kind.CONNECT, Kind.RESET, Kind.TIMEOUT])
def test_a_failure_costs_the_penalty_however_fast_it_came(kind: Kind) -> None:
    _, nodes = _learning(3)
    for node in nodes:
        node.answered(0.0, Kind.OK, 0.010)

    nodes[0].answered(0.0, kind, 0.001)

    assert nodes[0].ewma == pytest.approx(20 * 0.010)


@pytest.mark.parametrize(("usual", "penalty"), [(0.001, 0.1), (0.004, 0.1), (0.010, 0.2), (1.0, 5.0)])
def test_the_penalty_is_at_least_a_tenth_of_a_second_and_at_most_five(usual: float, penalty: float) -> None:
    _, nodes = _learning(3)
    for node in nodes:
        node.answered(0.0, Kind.OK, usual)

    nodes[0].answered(0.0, Kind.ERROR, 0.001)

    assert nodes[0].ewma == pytest.approx(penalty)


def test_a_failure_slower_than_the_penalty_counts_in_full() -> None:
    _, nodes = _learning(2)
    nodes[0].finish(0.0, Kind.TIMEOUT, 60.0)

    assert nodes[0].ewma == 60.0


@pytest.mark.parametrize("wait", [30.0, 120.0])
def test_retry_after_costs_as_much_as_falls_back_to_the_median_in_that_time(wait: float) -> None:
    _, nodes = _learning(3)
    for node in nodes:
        node.answered(0.0, Kind.OK, 0.010)

    nodes[0].answered(0.0, Kind.PUSHBACK, 0.001, wait)

    assert nodes[0].ewma * exp(-wait / DECAY) == pytest.approx(0.010)


def test_a_short_retry_after_costs_no_less_than_a_failure() -> None:
    _, nodes = _learning(3)
    nodes[0].answered(0.0, Kind.PUSHBACK, 0.001, 0.0)

    assert nodes[0].ewma == pytest.approx(20 * UNKNOWN)


def test_retry_after_is_believed_for_five_minutes_at_most_and_never_overflows() -> None:
    _, (node, patient) = _learning(2)
    node.answered(0.0, Kind.PUSHBACK, 0.001, 1e9)
    _, (hasty,) = _learning(1, PeakEwma(decay=0.1))
    hasty.answered(0.0, Kind.PUSHBACK, 0.001, 300.0)

    assert node.ewma * exp(-300.0 / DECAY) == pytest.approx(UNKNOWN)
    assert 0 < hasty.ewma < 1e300
    assert patient.ewma == 0.0


def test_a_client_that_left_counts_only_as_a_lower_bound() -> None:
    _, (node,) = _learning(1)
    node.answered(0.0, Kind.OK, 0.100)
    node.finish(5.0, Kind.CANCELLED, 0.050)
    unmoved = node.ewma, node.stamp
    node.finish(6.0, Kind.CANCELLED, 0.300)

    assert unmoved == (0.100, 0.0)
    assert (node.ewma, node.stamp) == (0.300, 6.0)


def test_pauses_asked_for_by_all_do_not_lengthen_one_another_and_end() -> None:
    """Each is added to the usual latency, not to the others' pauses: the product has no bound."""
    nodes = some_nodes(3)
    latency = Latency(PeakEwma(decay=1.0), nodes)
    for at in range(30):
        latency.observe(nodes[at % 3], at * 10.0, Kind.PUSHBACK, 0.001, 300.0)

    assert all(node.ewma * exp(node.stamp - 1000.0) < 1.0 for node in nodes)


def test_the_median_is_of_the_nodes_with_a_latency_brought_to_now() -> None:
    nodes = some_nodes(5)
    assert median(nodes, 0.0, DECAY) == 0.0

    for node, ewma in zip(nodes, (0.040, 0.010, 0.020), strict=False):
        node.ewma = ewma
    assert median(nodes, 1.0, DECAY) == pytest.approx(0.020 * exp(-1 / DECAY))

    nodes[3].ewma = 0.030
    assert median(nodes, DECAY, DECAY) == pytest.approx(0.025 / e)


def test_the_penalty_goes_by_a_median_at_most_a_second_old() -> None:
    _, nodes = _learning(3)
    nodes[0].answered(0.0, Kind.ERROR, 0.001)
    for node in nodes[1:]:
        node.answered(0.5, Kind.OK, 0.010)
    nodes[0].ewma = 0.0

    nodes[0].answered(0.9, Kind.ERROR, 0.001)
    assert nodes[0].ewma == pytest.approx(20 * UNKNOWN)

    nodes[0].ewma = 0.0
    nodes[0].answered(1.0, Kind.ERROR, 0.001)
    assert nodes[0].ewma == pytest.approx(20 * 0.010 * exp(-0.5 / DECAY))


def test_new_terms_hold_from_the_next_attempt() -> None:
    latency, nodes = _learning(1)
    latency.terms = PeakEwma(decay=1.0, failure_penalty=100.0)
    nodes[0].answered(0.0, Kind.ERROR, 0.001)

    assert nodes[0].ewma == pytest.approx(100 * UNKNOWN)
