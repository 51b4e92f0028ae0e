"""A weighted draw by cumulative sums and bisection: O(log N), O(1) with equal weights."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from itertools import accumulate
from random import Random

from controller.balancing.node import Node

REDRAWS = 8  # before the untried nodes are listed: 1 in 256 comes so far when half of the weight is tried


class WeightedDraw:
    """Draws nodes in proportion to their weights (or evenly, with a weight of 1 for each)."""

    __slots__ = ("cumulative", "equal", "last", "nodes", "random", "total", "weights")

    def __init__(self, weights: Mapping[Node, int], random: Random) -> None:
        self.nodes = list(weights)
        self.weights = list(weights.values())
        self.equal = len(set(self.weights)) == 1
        self.cumulative = list(accumulate(self.weights))
        self.total = self.cumulative[-1]
        self.last = len(self.nodes) - 1
        self.random = random.random

    def draw(self) -> int:
        """Return an index. `bisect_right`: a draw of exactly the first sum belongs to the second node.

        The upper bound `last` holds when `U · total` rounds up to a total above 2^53.
        """
        if self.equal:
            return int(self.random() * len(self.nodes))
        return bisect_right(self.cumulative, self.random() * self.total, 0, self.last)

    def untried(self, tried: Collection[Node], besides: int = -1) -> int:
        """Return the index of a node neither tried nor `besides`, by weight; -1 if there is none."""
        nodes = self.nodes
        for _ in range(REDRAWS):
            at = self.draw()
            if at != besides and nodes[at] not in tried:
                return at
        rest = [i for i, node in enumerate(nodes) if i != besides and node not in tried]
        if not rest:
            return -1
        bounds = list(accumulate(self.weights[i] for i in rest))
        return rest[bisect_right(bounds, self.random() * bounds[-1], 0, len(rest) - 1)]
