"""Smooth weighted round robin (nginx): 4/2/1 gives a b a c a b a, where the naive form comes in bursts of the weight.

Each pick adds every node's weight to its `current`, takes the greatest (ties: the earlier in order) and takes the sum
of the weights off it. From zero the counts are exact in every period of that sum. O(N). With equal weights the same
sequence is a plain rotation, and a position will do, in O(1).
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import add

from controller.balancing.node import Node
from controller.balancing.picker import PickRequest


class SmoothRotation:
    """`nodes` in their order, with the `lags` that they start from (in turns, of sum zero)."""

    __slots__ = ("_circle", "_current", "_nodes", "_position", "_size", "_total", "_values", "weights")

    def __init__(self, nodes: list[Node], weights: Mapping[Node, int], lags: list[float]) -> None:
        self.weights = weights
        self._nodes = nodes
        self._size = len(nodes)
        equal = len(set(weights.values())) == 1
        self._values = [1] * self._size if equal else [weights[node] for node in nodes]
        self._total = sum(self._values)
        self._current = [round(lag * self._total) for lag in lags]
        # Equal weights: indices in the order of their turns, and how many of this circle's turns are over.
        self._circle: list[int] = []
        self._position = 0
        self._enter_circle()

    def lag(self, at: int) -> float:
        return self._currents()[at] / self._total

    def pick(self, request: PickRequest) -> Node:
        if request.tried:
            return self._untried(request)
        if self._circle:
            return self._turn()
        return self._nodes[self._scan()]

    def skip(self, picks: int) -> None:
        """Start later in the sequence, so that the workers' first requests do not all go to the same node."""
        for _ in range(picks):
            if self._circle:
                self._turn()
            else:
                self._scan()

    def _turn(self) -> Node:
        position = self._position
        node = self._nodes[self._circle[position]]
        position += 1
        self._position = position if position < self._size else 0
        return node

    def _scan(self) -> int:
        self._current = current = list(map(add, self._current, self._values))
        best = current.index(max(current))
        current[best] -= self._total
        self._enter_circle()
        return best

    def _untried(self, request: PickRequest) -> Node:
        untried = [at for at, node in enumerate(self._nodes) if node not in request.tried]
        if not untried:
            return self._turn() if self._circle else self._nodes[self._scan()]
        self._current = current = self._currents()
        self._circle = []
        for at in untried:
            current[at] += self._values[at]
        best = max(untried, key=current.__getitem__)  # the first of equals
        current[best] -= sum(self._values[at] for at in untried)
        self._enter_circle()
        return self._nodes[best]

    def _enter_circle(self) -> None:
        """With equal weights, turn in a circle as soon as all nodes are within one turn of each other.

        From there the greatest, once picked, is the least: the order of the falling values repeats for ever.
        """
        current = self._current
        if self._total == self._size and max(current) - min(current) < self._size:
            self._circle = sorted(range(self._size), key=lambda at: -current[at])
            self._position = 0

    def _currents(self) -> list[int]:
        """Return the values as they are after the circle's `_position` picks."""
        if not self._circle:
            return self._current
        current = [value + self._position for value in self._current]
        for at in self._circle[: self._position]:
            current[at] -= self._size
        return current
