"""What a pick costs, as a multiple of one `Random.randrange(100)`: medians of interleaved rounds in one process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from itertools import count, islice
from random import Random
from statistics import median
from time import thread_time

import pytest

from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, Options, PickRequest
from controller.balancing.tables import Scheme
from controller.model.service import ConsistentHash
from tests.unit.balancing.sets import flat_set, hashing, picker_of, some_nodes

ROUNDS = 7
CALLS = 2000
TRIES = 3  # noise only ever adds, so a case over its limit is measured again
UNEQUAL = [1 + at % 7 for at in range(100)]
PRIMES = [number for number in range(100, 600) if all(number % other for other in range(2, 25))]  # a long period

Round = Callable[[], float]  # CPU-seconds for one call: another process in between is no cost of a pick


def _draws() -> Round:
    draw, calls = Random(1).randrange, range(CALLS)

    def one_round() -> float:
        start = thread_time()
        for _ in calls:
            draw(100)
        return (thread_time() - start) / CALLS

    return one_round


def _picks(policy: str, size: int, weights: Sequence[int] | None = None) -> Round:
    """At rest, with 50 keys in turn."""
    return _rounds(policy, flat_set(_known(size), weights), Options(), _again)


def _hashes(scheme: Scheme, key: Callable[[int], bytes], load: int = 0) -> Round:
    nodes = _known(100)
    for node in nodes:
        node.inflight = load
    return _rounds("ConsistentHash", flat_set(nodes), hashing(ConsistentHash(table=scheme)), key)


def _known(size: int) -> list[Node]:
    """Return nodes that have answered before."""
    nodes = some_nodes(size)
    for node in nodes:
        node.ewma = 0.010
    return nodes


def _rounds(policy: str, candidates: CandidateSet, options: Options, key: Callable[[int], bytes]) -> Round:
    pick = picker_of(policy, candidates, options=options).pick
    numbers = count()

    def one_round() -> float:
        requests = [PickRequest(0.0, key(number)) for number in islice(numbers, CALLS)]
        start = thread_time()
        for request in requests:
            pick(request)
        return (thread_time() - start) / CALLS

    return one_round


def _again(number: int) -> bytes:
    return b"user-%d" % (number % 50)


def _fresh(number: int) -> bytes:
    return b"user-%d" % number


# Each with the multiple that it may cost. A fresh key's rendezvous is a hundred hashes; known keys' homes are kept. A
# rotation repeats its period in O(1) unless that is too long to keep.
CASES: dict[str, tuple[Callable[[], Round], float]] = {
    "PowerOfTwoChoices, 100 equal": (lambda: _picks("PowerOfTwoChoices", 100), 4),
    "PowerOfTwoChoices, 100 unequal": (lambda: _picks("PowerOfTwoChoices", 100, UNEQUAL), 8),
    "RoundRobin, 100 equal": (lambda: _picks("RoundRobin", 100), 4),
    "RoundRobin, 100 unequal": (lambda: _picks("RoundRobin", 100, UNEQUAL), 8),
    "RoundRobin, 64 unequal": (lambda: _picks("RoundRobin", 64, UNEQUAL[:64]), 15),
    "RoundRobin, 64 unequal, long period": (lambda: _picks("RoundRobin", 64, PRIMES[:64]), 30),
    "ConsistentHash, rendezvous of 100, known keys": (lambda: _hashes("Rendezvous", _again), 5),
    "ConsistentHash, rendezvous of 100, fresh keys": (lambda: _hashes("Rendezvous", _fresh), 45),
    "ConsistentHash, Maglev of 100": (lambda: _hashes("Maglev", _fresh), 3),
    "ConsistentHash, Maglev of 100, bound looked at": (lambda: _hashes("Maglev", _fresh, 10), 8),
    "Random, 100 unequal": (lambda: _picks("Random", 100, UNEQUAL), 4),
    "PeakEWMA, 100": (lambda: _picks("PeakEWMA", 100), 8),
    "SourceHash, 100": (lambda: _picks("SourceHash", 100), 5),
    "LeastConnections, 100": (lambda: _picks("LeastConnections", 100), 65),
}


def _measured(names: Sequence[str]) -> dict[str, float]:
    """Return each case's multiple; the rounds of all take turns, so that a busy machine slows all alike."""
    base, cases = _draws(), {name: CASES[name][0]() for name in names}
    ratios: dict[str, list[float]] = {name: [] for name in names}
    gc.disable()
    try:
        for turn in range(ROUNDS + 1):
            for name, case in cases.items():
                seconds, unit = case(), base()
                if turn:  # the first one warms up
                    ratios[name].append(seconds / unit)
    finally:
        gc.enable()
    return {name: median(values) for name, values in ratios.items()}


@pytest.fixture(scope="module")
def multiples() -> dict[str, float]:
    found = _measured(list(CASES))
    for _ in range(TRIES - 1):
        over = [name for name, value in found.items() if value > CASES[name][1]]
        if over:
            found |= _measured(over)
    for name, value in found.items():
        print(f"{value:6.2f} × randrange  {name}")
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_pick_costs_no_more_than_its_multiple_of_a_draw(case: str, multiples: dict[str, float]) -> None:
    assert multiples[case] <= CASES[case][1]
