"""LeastConnections: the least in-flight over weight of all; ties at random by weight (nginx's key).

One scan, O(N). The key is f/w: (f+1)/w starves light endpoints at low load. Never the first of equals, which would
give one endpoint 7 times its share at low load. An endpoint that fails fast always looks idle: ejection's business.
"""

from __future__ import annotations

from collections.abc import Mapping
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
            untried = [i for i, node in enumerate(nodes) if node not in request.tried]
            if untried:
                nodes, weights = [nodes[i] for i in untried], [weights[i] for i in untried]
        if len(nodes) == 1:
            return nodes[0]
        loads = [node.inflight + node.others for node in nodes]
        if self._equal:
            least = min(loads)
            if loads.count(least) == 1:
                return nodes[loads.index(least)]
            ties = [node for node, load in zip(nodes, loads, strict=True) if load == least]
            return ties[int(self._random() * len(ties))]
        return nodes[self._least(loads, weights)]

    def _least(self, loads: list[int], weights: list[int]) -> int:
        """Return the index of the least load/weight, without a division; each tie wins with weight over ties so far."""
        best, best_load, best_weight, tie = 0, loads[0], weights[0], weights[0]
        for at in range(1, len(loads)):
            load, weight = loads[at], weights[at]
            key, best_key = load * best_weight, best_load * weight
            if key < best_key:
                best, best_load, best_weight, tie = at, load, weight, weight
            elif key == best_key:
                tie += weight
                if self._random() * tie < weight:
                    best, best_load, best_weight = at, load, weight
        return best
