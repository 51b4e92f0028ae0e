"""The EDF schedule: the same short traces as smooth weighted round robin, and no bursts in any window."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

import pytest

from controller.balancing.edf import EdfSchedule
from controller.balancing.node import Node
from controller.balancing.picker import PickRequest
from tests.unit.balancing.sets import names, sequence, some_nodes


def _schedule(weights: list[int], lags: list[float] | None = None) -> tuple[EdfSchedule, list[Node]]:
    nodes = some_nodes(len(weights))
    return EdfSchedule(nodes, dict(zip(nodes, weights, strict=True)), lags or [0.0] * len(nodes)), nodes


def _lags(schedule: EdfSchedule, size: int) -> list[float]:
    return [schedule.lag(at) for at in range(size)]


def _excess(schedule: EdfSchedule, nodes: list[Node], weights: list[int], picks: int) -> float:
    """Return the most by which any node's count in any window exceeds its share of that window."""
    whole, worst = sum(weights), 0.0
    ahead = dict.fromkeys(nodes, 0.0)  # the greatest excess of a window that ends now
    for _ in range(picks):
        picked = schedule.pick(PickRequest(0.0))
        for node, weight in zip(nodes, weights, strict=True):
            ahead[node] = max(0.0, ahead[node] + (node is picked) - weight / whole)
        worst = max(worst, ahead[picked])
    return worst


def test_the_golden_sequence_is_that_of_smooth_round_robin() -> None:
    schedule, nodes = _schedule([4, 2, 1])
    letter = names(nodes)

    assert "".join(letter[node] for node in sequence(schedule, 21)) == "abacaba" * 3


def test_the_sum_of_the_lags_is_constant_under_picks() -> None:
    weights = [1 + at % 9 for at in range(80)]
    schedule, _ = _schedule(weights, [(at % 7) / 7 - 3 / 7 for at in range(80)])
    before = sum(_lags(schedule, 80))

    sequence(schedule, 5000)

    assert sum(_lags(schedule, 80)) == pytest.approx(before, abs=1e-6)


def test_every_window_of_a_period_holds_each_weight_give_or_take_one() -> None:
    weights = [5, 3, 3, 2, 2, 1, 1, 1]
    schedule, nodes = _schedule(weights)
    window: deque[Node] = deque(sequence(schedule, sum(weights)), maxlen=sum(weights))

    for _ in range(500):
        counts = Counter(window)
        assert all(abs(counts[node] - weight) <= 1 for node, weight in zip(nodes, weights, strict=True))
        window.append(schedule.pick(PickRequest(0.0)))


def test_one_heavy_among_a_hundred_light_gets_no_burst() -> None:
    """Plain earliest deadline first has an excess of 49.5 here."""
    weights = [100] + [1] * 100
    schedule, nodes = _schedule(weights)

    assert _excess(schedule, nodes, weights, 1000) <= 1.01


def test_random_weights_stay_within_two_turns_of_their_share() -> None:
    random = Random(6)
    for _ in range(20):
        weights = [random.randint(1, 50) for _ in range(random.randint(2, 20))]
        schedule, nodes = _schedule(weights, [random.random() - 0.5 for _ in weights])
        counts: Counter[Node] = Counter()
        for turn in range(1, 401):
            counts[schedule.pick(PickRequest(0.0))] += 1
            for node, weight in zip(nodes, weights, strict=True):
                assert abs(counts[node] - turn * weight / sum(weights)) < 2


def test_halving_a_weight_halves_the_rate_within_a_period() -> None:
    before, nodes = _schedule([4, 2, 2])
    sequence(before, 5)
    after = EdfSchedule(nodes, dict(zip(nodes, [2, 2, 2], strict=True)), _lags(before, 3))

    counts = Counter(sequence(after, 6))

    assert all(abs(counts[node] - 2) <= 1 for node in nodes)


def test_a_node_that_is_due_and_tried_waits_for_its_turn() -> None:
    """It is not picked, it piles up no second turn, and it comes first afterwards."""
    weights = [1 + at % 3 for at in range(70)]
    first = sequence(_schedule(weights)[0], 1)[0].id
    schedule, nodes = _schedule(weights)
    at = next(at for at, node in enumerate(nodes) if node.id == first)

    picks = sequence(schedule, 200, tried=[nodes[at]])

    assert nodes[at] not in picks
    assert 0 <= schedule.lag(at) < 1
    assert nodes[at] in sequence(schedule, 3)


def test_after_endpoints_were_full_the_excess_is_at_most_five() -> None:
    weights = [1 + at % 3 for at in range(70)]
    schedule, nodes = _schedule(weights)
    sequence(schedule, 500, tried=nodes[:40])

    assert _excess(schedule, nodes, weights, 500) <= 5


def test_when_all_are_tried_the_next_in_turn_is_picked() -> None:
    schedule, nodes = _schedule([4, 2, 1])
    letter = names(nodes)

    assert "".join(letter[node] for node in sequence(schedule, 7, tried=nodes)) == "abacaba"


@pytest.mark.parametrize("turns", [2.0**31 - 5, 2.0**40])
def test_shares_are_even_however_long_the_schedule_has_run(turns: float) -> None:
    schedule, nodes = _schedule([2, 1, 1])
    schedule._now += turns
    for at in range(3):
        schedule._starts[at] += turns
    schedule._wait = [(start, at) for at, start in enumerate(schedule._starts)]

    counts = Counter(sequence(schedule, 40))

    assert [counts[node] for node in nodes] == [20, 10, 10]
