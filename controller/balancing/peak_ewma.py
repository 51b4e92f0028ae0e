"""PeakEWMA: two even draws, the lower of latency × (in-flight + 1) / weight wins; ties the first.

It routes around endpoints that have become slow, whoever loads them. The in-flight factor and the two draws keep it
from stampeding onto the fastest, which a scan by completed latency alone does. With unequal weights inside one group
shares are approximate; between `Backend`-weighted backends they are exact. (Finagle, Linkerd.)
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from random import Random

from controller.balancing.draw import WeightedDraw
from controller.balancing.latency import UNKNOWN, median
from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, Options, Picker, PickRequest
from controller.balancing.shares import by_group


def peak_ewma(candidates: CandidateSet, options: Options, random: Random) -> Picker:
    decay = options.algorithm.peak_ewma.decay
    return by_group(candidates, random, lambda weights: PeakEwmaPicker(weights, decay, random))


class PeakEwmaPicker:
    """Chooses inside one share group. O(1). `decay` in seconds, above 0."""

    __slots__ = ("_decay", "_draw", "_nodes", "_others", "_random", "_size", "_weights")

    def __init__(self, weights: Mapping[Node, int], decay: float, random: Random) -> None:
        self._draw = WeightedDraw(dict.fromkeys(weights, 1), random)
        self._nodes = self._draw.nodes
        self._weights = list(weights.values())
        self._size = len(self._nodes)
        self._others = self._size - 1
        self._decay = decay
        self._random = random.random

    def pick(self, request: PickRequest) -> Node:
        first, second = self._two(request)
        if second < 0:
            return self._nodes[first]
        now = request.now
        return self._nodes[second if self._cost(second, now) < self._cost(first, now) else first]

    def _two(self, request: PickRequest) -> tuple[int, int]:
        """Return two distinct indices, untried if there are such; -1 for a second that doesn't exist."""
        if request.tried:
            first = self._draw.untried(request.tried)
            if first >= 0:
                return first, self._draw.untried(request.tried, besides=first)
        first = int(self._random() * self._size)
        second = int(self._random() * self._others) if self._others else -1
        return first, second + 1 if second >= first else second

    def _cost(self, at: int, now: float) -> float:
        """Return the cost, and let an idle node's latency fall on the way: a bad one is tried again in the end."""
        node = self._nodes[at]
        if node.ewma > 0.0:
            node.ewma *= exp((node.stamp - now) / self._decay)
        else:
            node.ewma = median(self._nodes, now, self._decay)  # a newcomer starts where the others are
        node.stamp = now
        return (node.ewma or UNKNOWN) * (node.load() + 1) / self._weights[at]
