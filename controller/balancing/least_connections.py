"""LeastConnections: the least in-flight over weight of all; ties at random by weight (nginx's key).

One scan, O(N). The key is f/w: (f+1)/w starves light endpoints at low load. Never the first of equals, which would
give one endpoint 7 times its share at low load. An endpoint that fails fast always looks idle: ejection's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from random import Random

from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, Options, Picker, PickRequest
from controller.balancing.shares import by_group


def least_connections(candidates: CandidateSet, options: Options, random: Random) -> Picker:
    return by_group(candidates, random, lambda weights: LeastConnections(weights, random))


class LeastConnections:
    """Scans one share group."""

    __slots__ = ("_equal", "_nodes", "_random", "_weights")

    def __init__(self, weights: Mapping[Node, int], random: Random) -> None:
        self._nodes = list(weights)
        self._weights = list(weights.values())
        self._equal = len(set(self._weights)) == 1
        self._random = random.random

    def pick(self, request: PickRequest) -> Node:
        nodes, weights = self._nodes, self._weights
        if request.tried:
            untried = [at for at, node in enumerate(nodes) if node not in request.tried]
            if untried:
                nodes, weights = [nodes[at] for at in untried], [weights[at] for at in untried]
        if len(nodes) == 1:
            return nodes[0]
        if self._equal:
            loads = [node.inflight + node.others for node in nodes]
            least = min(loads)
            if loads.count(least) == 1:
                return nodes[loads.index(least)]
            ties = [node for node, load in zip(nodes, loads, strict=True) if load == least]
            return ties[int(self._random() * len(ties))]
        return self._least(nodes, weights)

    def _least(self, nodes: list[Node], weights: list[int]) -> Node:
        """Return a node of the least load/weight; each tie wins with its weight over the ties' so far.

        Division is rounded correctly: equal ratios are equal floats, and unequal ones differ (of numbers below 2^26).
        """
        random, best, best_key, tie = self._random, nodes[0], inf, 0
        for node, weight in zip(nodes, weights, strict=True):
            key = (node.inflight + node.others) / weight
            if key < best_key:
                best, best_key, tie = node, key, weight
            elif key == best_key:
                tie += weight
                if random() * tie < weight:
                    best = node
        return best
