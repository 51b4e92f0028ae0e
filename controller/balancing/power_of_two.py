"""PowerOfTwoChoices: two weighted draws without replacement; the lower in-flight over weight wins, ties the first.

Two details carry it. *Draw by weight, compare f/w*: with (f+1)/w a heavy endpoint wins every idle pair and light
ones starve. *Without replacement*: with it, the busier of two endpoints still gets a quarter. Two draws distort the
shares of few endpoints, so a group of up to four is scanned as by LeastConnections. (Mitzenmacher 2001; the default of
Envoy and HAProxy.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from random import Random

from controller.balancing.draw import WeightedDraw
from controller.balancing.least_connections import LeastConnections
from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, Options, Picker, PickRequest
from controller.balancing.shares import by_group

# A node of half the weight of its siblings is a candidate 1.0, .61, .56, .54 times as often as they at 2, 3, 4, 5.
SCAN = 4


def power_of_two(candidates: CandidateSet, options: Options, random: Random) -> Picker:
    def inside(weights: Mapping[Node, int]) -> Picker:
        return LeastConnections(weights, random) if len(weights) <= SCAN else PowerOfTwoChoices(weights, random)

    return by_group(candidates, random, inside)


class PowerOfTwoChoices:
    """One share group of more than two nodes. O(1) with equal weights, else O(log N)."""

    __slots__ = ("_draw", "_equal", "_nodes", "_others", "_random", "_size")

    def __init__(self, weights: Mapping[Node, int], random: Random) -> None:
        self._draw = WeightedDraw(weights, random)
        self._nodes = self._draw.nodes
        self._equal = self._draw.equal
        self._size = len(self._nodes)
        self._others = self._size - 1
        self._random = random.random

    def pick(self, request: PickRequest) -> Node:
        if request.tried:
            return self._untried(request)
        if not self._equal:
            return self._weighted()
        random = self._random
        first = int(random() * self._size)
        second = int(random() * self._others)
        if second >= first:
            second += 1
        a = self._nodes[first]
        b = self._nodes[second]
        return a if a.load() <= b.load() else b

    def _weighted(self) -> Node:
        draw = self._draw
        cumulative, random = draw.cumulative, self._random
        first = bisect_right(cumulative, random() * draw.total, 0, draw.last)
        # Drawing from the line with a's interval cut out is what redrawing until b is not a comes to.
        weight = draw.weights[first]
        point = int(random() * (draw.total - weight))
        if point >= cumulative[first] - weight:
            point += weight
        return self._lower(first, bisect_right(cumulative, point, 0, draw.last))

    def _lower(self, first: int, second: int) -> Node:
        a, b = self._nodes[first], self._nodes[second]
        weights = self._draw.weights
        return a if a.load() * weights[second] <= b.load() * weights[first] else b

    def _untried(self, request: PickRequest) -> Node:
        first = self._draw.untried(request.tried)
        if first < 0:
            return self._weighted()
        second = self._draw.untried(request.tried, besides=first)
        return self._lower(first, second if second >= 0 else first)
