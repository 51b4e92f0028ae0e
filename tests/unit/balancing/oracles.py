"""Simpler forms of the same algorithms, to compare with. None of them is used in production."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle, islice
from typing import TypeVar

T = TypeVar("T")


def expanded_list(weights: Mapping[T, int]) -> list[T]:
    """Return each item as often as its weight says: the textbook's weighted list."""
    return [item for item, weight in weights.items() for _ in range(weight)]


def naive_round_robin(weights: Mapping[T, int], picks: int) -> list[T]:
    """Walk the expanded list in a circle: exact per period, and in bursts of the weight."""
    return list(islice(cycle(expanded_list(weights)), picks))


def by_subtraction(weights: Mapping[T, int], r: int) -> T:
    """Return the item whose interval holds r, for r from 0 to the sum less one."""
    for item, weight in weights.items():
        if r < weight:
            return item
        r -= weight
    raise AssertionError("r is not below the sum of the weights")


class PlainSmooth:
    """Smooth weighted round robin as nginx writes it: one scan a pick, nothing remembered."""

    def __init__(self, weights: Sequence[int]) -> None:
        self.weights = list(weights)
        self.current = [0] * len(weights)

    def pick(self, tried: Collection[int] = ()) -> int:
        best, total = -1, 0
        ignore = len(set(tried)) == len(self.weights)
        for at, weight in enumerate(self.weights):
            if at in tried and not ignore:
                continue
            self.current[at] += weight
            total += weight
            if best < 0 or self.current[at] > self.current[best]:
                best = at
        self.current[best] -= total
        return best
