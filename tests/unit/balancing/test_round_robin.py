"""RoundRobin across changes: what a rebuild keeps, and the excess that a change can cause."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from controller.balancing.node import Node
from controller.balancing.picker import Options, PickRequest
from controller.balancing.rotation import Place
from controller.balancing.round_robin import round_robin
from controller.proxy.seat import Seat
from tests.unit.balancing.sets import flat_set, group_of, picker_of, sequence, set_of, some_nodes


def _share_excess(nodes: list[Node], weights: list[int], picks: list[Node]) -> float:
    """Return the greatest excess over its share of any node in any window of these picks."""
    whole, worst = sum(weights), 0.0
    ahead = dict.fromkeys(nodes, 0.0)
    for picked in picks:
        for node, weight in zip(nodes, weights, strict=True):
            ahead[node] = max(0.0, ahead[node] + (node is picked) - weight / whole)
        worst = max(worst, max(ahead.values()))
    return worst


@pytest.mark.parametrize("size", [1, 2, 5, 64, 65, 100])
def test_equal_weights_are_the_plain_rotation_whatever_the_size(size: int) -> None:
    nodes = some_nodes(size)
    picks = sequence(picker_of("RoundRobin", flat_set(nodes)), 3 * size)

    assert picks[:size] * 3 == picks
    assert set(nodes) == set(picks[:size])


@pytest.mark.parametrize("size", [5, 80])
def test_an_unchanged_set_keeps_its_very_sequence(size: int) -> None:
    weights = [1 + at % 4 for at in range(size)]
    kept, rebuilt = some_nodes(size), some_nodes(size)
    steady = picker_of("RoundRobin", flat_set(kept, weights))
    expected = [node.id for node in sequence(steady, 400)]
    found = []

    for step in range(400):
        picker = picker_of("RoundRobin", flat_set(rebuilt, weights), seed=1 if step == 0 else step)
        found.append(picker.pick(PickRequest(0.0)).id)

    assert expected == found


@pytest.mark.parametrize("size", [5, 80])
def test_an_unchanged_set_keeps_its_rotation_itself(size: int) -> None:
    """Through lags and back, rounding may swap two picks."""
    nodes, weights = some_nodes(size), [1 + at % 4 for at in range(size)]

    assert picker_of("RoundRobin", flat_set(nodes, weights)) is picker_of("RoundRobin", flat_set(nodes, weights))


def test_a_rotation_of_other_nodes_is_not_taken_up_again() -> None:
    """x has moved on in another set since it stood in a rotation with y."""
    for _ in range(20):
        x, y = some_nodes(2)
        both = picker_of("RoundRobin", flat_set([x, y]))
        picker_of("RoundRobin", flat_set([x]))
        assert both is not picker_of("RoundRobin", flat_set([y, x]))


def test_an_endpoint_listed_by_two_backends_has_the_sum_of_its_weights() -> None:
    a, b = some_nodes(2)
    picker = picker_of("RoundRobin", set_of(group_of([a, b], [1, 1], "x"), group_of([a], [2], "y")))

    assert Counter({a: 30, b: 10}) == Counter(sequence(picker, 40))


def test_the_lag_outlives_a_change_of_weights() -> None:
    nodes = some_nodes(3)
    picker_of("RoundRobin", flat_set(nodes, [4, 2, 1])).pick(PickRequest(0.0))
    before = [node.lag[""].turns() for node in nodes]

    picker_of("RoundRobin", flat_set(nodes, [700, 700, 600]))

    assert before == pytest.approx([node.lag[""].turns() for node in nodes], abs=1e-3)


def test_crossing_sixty_four_endpoints_keeps_the_lags_of_those_that_stay() -> None:
    nodes = some_nodes(66)
    weights = [1 + at % 3 for at in range(66)]
    picker = picker_of("RoundRobin", flat_set(nodes[:64], weights[:64]))
    sequence(picker, 77)
    before = [node.lag[""].turns() for node in nodes[:64]]

    picker_of("RoundRobin", flat_set(nodes, weights))
    after = [node.lag[""].turns() for node in nodes]

    shifts = [new - old for new, old in zip(after, before, strict=False)]
    assert sum(after) == pytest.approx(0, abs=1e-6)
    assert shifts == pytest.approx([shifts[0]] * 64)


def test_lags_are_kept_per_candidate_set() -> None:
    nodes = some_nodes(2)
    for scope in ("0", "1"):
        picker = picker_of("RoundRobin", flat_set(nodes), options=Options(scope=scope))
        picker.pick(PickRequest(0.0))

    assert {"0", "1"} == set(nodes[0].lag)
    assert nodes[0].lag["0"] != nodes[0].lag["1"]


@pytest.mark.parametrize("size", [4, 20, 64, 100])
def test_after_any_changes_no_endpoint_gets_more_than_two_picks_over_its_share(size: int) -> None:
    """In any window, of N picks or others, of the 2 N that follow the change."""
    random = Random(size)
    pool = some_nodes(size + 5)
    for _ in range(60):
        chosen = random.sample(pool, random.randint(max(1, size - 5), size + 5))
        scale = random.choice([1, 10, 1000])
        weights = [random.randint(1, scale) for _ in chosen]
        picker = picker_of("RoundRobin", flat_set(chosen, weights), seed=random.randrange(1000))
        following = sequence(picker, 2 * len(chosen))
        assert _share_excess(chosen, weights, following) <= 2
        sequence(picker, random.randrange(2 * size))


def test_the_end_of_a_ramp_does_not_flood_the_one_that_ramped() -> None:
    """Integer counters kept as they are gave it 983 picks in a row."""
    nodes = some_nodes(4)
    for last in range(100, 1000, 7):
        sequence(picker_of("RoundRobin", flat_set(nodes, [1000, 1000, 1000, last])), 3)
    picks = sequence(picker_of("RoundRobin", flat_set(nodes, [1000] * 4)), 100)

    assert Counter(picks)[nodes[3]] <= 27


def test_a_light_endpoint_that_becomes_heavy_has_no_backlog() -> None:
    """Deadlines kept as they are gave it 172 of the next thousand."""
    nodes = some_nodes(70)
    sequence(picker_of("RoundRobin", flat_set(nodes, [1] + [1000] * 69)), 5000)
    picks = sequence(picker_of("RoundRobin", flat_set(nodes, [1000] * 70)), 1000)

    assert Counter(picks)[nodes[0]] <= 1000 / 70 + 2


def test_frequent_updates_do_not_restart_the_rotation() -> None:
    """Resets give shares from nought to twenty-fold where a worker sees one request between two updates."""
    nodes = some_nodes(20)
    counts: Counter[Node] = Counter()
    for step in range(400):
        weights = [1000] * 19 + [900 + step % 100]
        counts[picker_of("RoundRobin", flat_set(nodes, weights), seed=step).pick(PickRequest(0.0))] += 1

    assert all(18 <= counts[node] <= 22 for node in nodes)


@pytest.mark.parametrize("at", range(6))
def test_a_set_that_shrinks_at_any_position_skips_nobody(at: int) -> None:
    nodes = some_nodes(6)
    picker = picker_of("RoundRobin", flat_set(nodes))
    order = sequence(picker, 6)
    sequence(picker, at)
    gone = order[at]

    rest = sequence(picker_of("RoundRobin", flat_set([node for node in nodes if node is not gone])), 5)

    assert [*order[at + 1 :], *order[:at]] == rest


def test_the_permutation_is_the_pods_and_the_start_the_workers() -> None:
    nodes = some_nodes(20)

    def first_picks(seed: int, phase: float) -> list[str]:
        fresh = some_nodes(20)
        picker = round_robin(flat_set(fresh), Options(seed=seed, phase=phase), Random(1))
        return [node.id for node in sequence(picker, 20)]

    here, half_on, other = first_picks(1, 0.0), first_picks(1, 0.5), first_picks(2, 0.0)

    assert [*here[10:], *here[:10]] == half_on
    assert other != here
    assert sorted(other) == sorted(here) == sorted(node.id for node in nodes)
    assert set(pairwise(other)) != set(pairwise(here)), "pods differ in the successor of a skipped endpoint"


def test_the_first_requests_of_a_fleet_cover_most_of_the_endpoints() -> None:
    """4 pods of 8 workers, 20 endpoints; aligned, all 32 would begin with the same one. Random offsets cover 80 %."""
    for fleet in range(10):
        firsts = set()
        for pod in range(4):
            for worker in range(8):
                seat = Seat(identity=f"fleet-{fleet}-pod-{pod}", worker=worker, workers=8)
                options = Options(seed=seat.seed("shop"), phase=seat.phase("shop"))
                picker = round_robin(flat_set(some_nodes(20)), options, seat.random("shop"))
                firsts.add(picker.pick(PickRequest(0.0)).id)
        assert len(firsts) >= 10


def test_aligned_starts_do_not_send_all_first_requests_to_the_heaviest() -> None:
    """Of 32 workers with weights 4/2/1 the first picks come near 4 : 2 : 1."""
    firsts: Counter[int] = Counter()
    for worker in range(32):
        nodes = some_nodes(3)
        picker = round_robin(flat_set(nodes, [4, 2, 1]), Options(phase=worker / 32), Random(1))
        firsts[nodes.index(picker.pick(PickRequest(0.0)))] += 1

    assert 16 <= firsts[0] <= 21
    assert 8 <= firsts[1] <= 11
    assert 3 <= firsts[2] <= 6


def test_unequal_newcomers_above_sixty_four_start_at_random_lags() -> None:
    def first(seed: int) -> str:
        nodes = some_nodes(65)
        picker = picker_of("RoundRobin", flat_set(nodes, [2] + [1] * 64), seed=seed)
        return picker.pick(PickRequest(0.0)).id

    assert len({first(seed) for seed in range(20)}) > 5


def test_a_foreign_kind_of_lag_is_no_rotation_to_take_up() -> None:
    class Held:
        def turns(self) -> float:
            return 0.25

    nodes = some_nodes(2)
    nodes[0].lag[""] = nodes[1].lag[""] = Held()
    picker_of("RoundRobin", flat_set(nodes))

    assert all(isinstance(node.lag[""], Place) for node in nodes)
