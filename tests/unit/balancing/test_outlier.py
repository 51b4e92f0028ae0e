"""Ejection: what counts, what it costs, and what it never does."""

from __future__ import annotations

from random import Random

import pytest

from controller.balancing.node import Kind, Node
from controller.balancing.outlier import Outlier
from controller.model.endpoints import Endpoint
from controller.model.service import PassiveHealth, SuccessRate


class Steady(Random):
    """No jitter, so that durations can be read."""

    def random(self) -> float:
        return 0.0


class Bench:
    """An outlier detector over `size` nodes; `now` moves by hand."""

    def __init__(self, size: int, terms: PassiveHealth = PassiveHealth(), random: Random | None = None) -> None:  # noqa: B008 - immutable
        self.now = 100.0
        self.changes: list[str] = []
        self.outlier = Outlier(terms, random or Steady(), lambda node: self.changes.append(node.id))
        self.nodes = [
            Node(Endpoint(id=f"n{number}", address="10.0.0.1", port=80), 0.0, (self.outlier.observe,))
            for number in range(size)
        ]
        self.outlier.base = self.nodes

    def tell(self, at: int, kind: Kind, times: int = 1) -> None:
        for _ in range(times):
            self.nodes[at].answered(self.now, kind, 0.01)

    def sweep(self) -> None:
        self.now += 10
        self.outlier.sweep(self.now, self.nodes)

    def ejected(self) -> list[int]:
        return [at for at, node in enumerate(self.nodes) if node.ejected_until is not None]

    def left(self, at: int) -> float:
        until = self.nodes[at].ejected_until
        assert until is not None
        return until - self.now


@pytest.mark.parametrize("kind", [Kind.ERROR, Kind.CONNECT, Kind.RESET, Kind.TIMEOUT])
def test_failures_in_a_row_eject(kind: Kind) -> None:
    bench = Bench(3)

    bench.tell(0, kind, 4)
    assert bench.ejected() == []

    bench.tell(0, kind)
    assert bench.ejected() == [0]
    assert bench.left(0) == 30
    assert bench.changes == ["n0"]
    assert bench.outlier.causes == {bench.nodes[0]: "consecutive failures"}


def test_one_good_answer_starts_the_count_anew() -> None:
    bench = Bench(3)

    for _ in range(3):
        bench.tell(0, Kind.ERROR, 4)
        bench.tell(0, Kind.OK)

    assert bench.ejected() == []


@pytest.mark.parametrize("kind", [Kind.CANCELLED, Kind.PUSHBACK])
def test_what_is_neutral_or_back_pressure_teaches_nothing(kind: Kind) -> None:
    bench = Bench(3)
    bench.tell(0, Kind.ERROR, 4)

    bench.tell(0, kind, 10)

    assert (bench.nodes[0].consecutive, bench.nodes[0].total) == (4, 4)
    assert bench.ejected() == []


def test_the_last_usable_one_is_never_ejected() -> None:
    bench = Bench(1)
    bench.tell(0, Kind.ERROR, 50)
    assert bench.ejected() == []

    pair = Bench(2)
    pair.nodes[1].healthy = False
    pair.tell(0, Kind.ERROR, 50)
    assert pair.ejected() == []


def test_one_may_always_be_ejected_of_two_or_more() -> None:
    bench = Bench(2, PassiveHealth(max_ejected_percent=1))

    bench.tell(0, Kind.ERROR, 5)
    bench.tell(1, Kind.ERROR, 5)

    assert bench.ejected() == [0]


def test_at_most_the_given_share_is_ejected() -> None:
    bench = Bench(5)

    for at in range(5):
        bench.tell(at, Kind.ERROR, 5)

    assert bench.ejected() == [0, 1]


def test_one_outside_the_base_is_not_judged() -> None:
    bench = Bench(3)
    bench.outlier.base = bench.nodes[:2]

    bench.tell(2, Kind.ERROR, 50)

    assert bench.ejected() == []


def test_while_it_is_ejected_nothing_more_happens_to_it() -> None:
    bench = Bench(3)
    bench.tell(0, Kind.ERROR, 5)

    bench.now += 29.9
    bench.tell(0, Kind.ERROR, 5)
    bench.tell(0, Kind.OK)

    assert bench.left(0) == pytest.approx(0.1)
    assert bench.changes == ["n0"]


def test_a_good_probe_brings_it_back_with_clean_counters_and_a_new_age() -> None:
    bench = Bench(3)
    bench.tell(0, Kind.OK, 7)
    bench.tell(0, Kind.ERROR, 5)

    bench.now += 30
    bench.tell(0, Kind.OK)

    node = bench.nodes[0]
    assert (node.ejected_until, node.consecutive, node.ok, node.total) == (None, 0, 0, 0)
    assert node.since == bench.now
    assert bench.changes == ["n0", "n0"]
    assert bench.outlier.causes == {}


def test_one_failed_probe_ejects_again_for_longer() -> None:
    bench = Bench(3)
    bench.tell(0, Kind.ERROR, 5)

    bench.now += 30
    bench.tell(0, Kind.CONNECT)

    assert bench.left(0) == 60
    assert bench.outlier.causes[bench.nodes[0]] == "failed its probe"


def test_a_neutral_probe_proves_nothing() -> None:
    bench = Bench(3)
    bench.tell(0, Kind.ERROR, 5)

    bench.now += 30
    bench.tell(0, Kind.CANCELLED)

    assert bench.left(0) == 0


def test_durations_grow_with_each_ejection_up_to_the_cap() -> None:
    bench = Bench(3)
    bench.tell(0, Kind.ERROR, 5)

    durations = []
    for _ in range(12):
        durations.append(bench.left(0))
        bench.now += durations[-1]
        bench.tell(0, Kind.ERROR)

    assert durations == [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300]


def test_durations_are_jittered_by_up_to_a_tenth() -> None:
    found = set()
    for seed in range(50):
        bench = Bench(3, random=Random(seed))
        bench.tell(0, Kind.ERROR, 5)
        found.add(bench.left(0))

    assert len(found) == 50
    assert 30 <= min(found) < 31
    assert 32 < max(found) < 33


def test_a_quiet_interval_forgives_one_ejection() -> None:
    bench = Bench(3)
    bench.tell(0, Kind.ERROR, 5)
    bench.now += 30
    bench.tell(0, Kind.OK)
    assert bench.nodes[0].times == 1

    bench.sweep()
    assert bench.nodes[0].times == 1  # it was ejected during that interval

    bench.sweep()
    assert bench.nodes[0].times == 0

    bench.sweep()
    assert bench.nodes[0].times == 0


def _rates(bench: Bench, *failures: int, requests: int = 100) -> None:
    """Failures spread out, so that none comes after another."""
    for at, failed in enumerate(failures):
        for number in range(requests):
            bench.tell(at, Kind.ERROR if number < 2 * failed and number % 2 else Kind.OK)


def test_a_success_rate_far_below_the_others_ejects() -> None:
    bench = Bench(5)
    _rates(bench, 0, 0, 0, 0, 40)

    bench.sweep()

    assert bench.ejected() == [4]
    assert bench.outlier.causes == {bench.nodes[4]: "success rate"}
    assert {node.total for node in bench.nodes} == {0}


def test_four_endpoints_are_too_few_to_compare() -> None:
    bench = Bench(4)
    _rates(bench, 0, 0, 0, 40)

    bench.sweep()

    assert bench.ejected() == []


def test_too_few_requests_are_not_compared() -> None:
    bench = Bench(6)
    _rates(bench, 0, 0, 0, 0, 40, requests=99)

    bench.sweep()

    assert bench.ejected() == []


def test_at_0_percent_none_is_ejected() -> None:
    bench = Bench(6, PassiveHealth(max_ejected_percent=0))
    bench.tell(0, Kind.ERROR, 50)
    _rates(bench, 0, 0, 0, 0, 0, 40)

    bench.sweep()

    assert bench.ejected() == []


def test_at_0_failures_in_a_row_only_the_success_rate_ejects() -> None:
    bench = Bench(6, PassiveHealth(consecutive_failures=0))
    bench.tell(0, Kind.ERROR, 50)
    assert bench.ejected() == []

    bench.tell(0, Kind.OK, 50)
    _rates(bench, 0, 0, 0, 0, 0, 0)
    bench.sweep()

    assert bench.ejected() == [0]


def test_a_gap_of_100_points_is_never_reached() -> None:
    bench = Bench(6, PassiveHealth(consecutive_failures=0, success_rate=SuccessRate(min_gap_percent=100)))
    _rates(bench, 0, 0, 0, 0, 0)
    bench.tell(5, Kind.ERROR, 200)

    bench.sweep()

    assert bench.ejected() == []


def test_deviations_alone_are_not_enough() -> None:
    bench = Bench(10)
    _rates(bench, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9)

    bench.sweep()

    assert bench.ejected() == []


@pytest.mark.parametrize(("size", "caught"), [(5, 1), (10, 2), (20, 4), (50, 10)])
def test_equal_outliers_are_found_up_to_about_a_fifth(size: int, caught: int) -> None:
    """k of n deviate by √((n − k)/k), which is above 1.9 up to 21.7 %."""
    few, many = Bench(size), Bench(size)
    _rates(few, *[0] * (size - caught), *[40] * caught)
    _rates(many, *[0] * (size - caught - 1), *[40] * (caught + 1))

    few.sweep()
    many.sweep()

    assert len(few.ejected()) == caught
    assert many.ejected() == []


def test_forgetting_a_node_leaves_nothing_of_it() -> None:
    bench = Bench(3)
    bench.tell(0, Kind.ERROR, 5)

    bench.outlier.forget(bench.nodes[0])

    assert bench.outlier.causes == {}
