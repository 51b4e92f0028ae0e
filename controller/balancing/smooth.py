"""Smooth weighted round robin (nginx): 4/2/1 gives a b a c a b a, where the naive form comes in bursts of the weight.

Each pick adds every node's weight to its `current`, takes the greatest (ties: the earlier in order) and takes the sum
of the weights off it. From zero the counts are exact in every period of that sum. O(N), until a period has come back
to where it began: then it is repeated, in O(1). With equal weights that is so at once: a plain rotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import add

from controller.balancing.node import Node
from controller.balancing.picker import PickRequest

LONGEST = 4096  # turns of a period that is worth remembering: 32 KiB


class SmoothRotation:
    """`nodes` in their order, with the `lags` that they start from (in turns, of sum zero)."""

    __slots__ = (
        "_base",
        "_current",
        "_equal",
        "_nodes",
        "_position",
        "_repeats",
        "_total",
        "_turns",
        "_values",
        "weights",
    )

    def __init__(self, nodes: list[Node], weights: Mapping[Node, int], lags: list[float]) -> None:
        self.weights = weights
        self._nodes = nodes
        self._equal = len(set(weights.values())) == 1
        self._values = [1] * len(nodes) if self._equal else [weights[node] for node in nodes]
        self._total = sum(self._values)
        # The values now and where the period began; its turns so far; whether it repeats, and then the place in it.
        self._current: list[int] = []
        self._base: list[int] = []
        self._turns: list[int] = []
        self._repeats = False
        self._position = 0
        self._remember_from([round(lag * self._total) for lag in lags])

    def lag(self, at: int) -> float:
        return self._now()[at] / self._total

    def pick(self, request: PickRequest) -> Node:
        if request.tried:
            return self._untried(request)
        return self._nodes[self._turn()]

    def skip(self, picks: int) -> None:
        """Start later in the sequence, so that the workers' first requests do not all go to the same node."""
        for _ in range(picks):
            self._turn()

    def _turn(self) -> int:
        if self._repeats:
            position = self._position
            self._position = position + 1 if position + 1 < self._total else 0
            return self._turns[position]
        self._current = current = list(map(add, self._current, self._values))
        best = current.index(max(current))
        current[best] -= self._total
        if self._equal:
            self._remember_from(current)
        elif self._total <= LONGEST:
            self._turns.append(best)
            if len(self._turns) == self._total:
                self._repeats = current == self._base
                if not self._repeats:
                    self._remember_from(current)
        return best

    def _untried(self, request: PickRequest) -> Node:
        untried = [at for at, node in enumerate(self._nodes) if node not in request.tried]
        if not untried:
            return self._nodes[self._turn()]
        current = self._now()
        for at in untried:
            current[at] += self._values[at]
        best = max(untried, key=current.__getitem__)  # the first of equals
        current[best] -= sum(self._values[at] for at in untried)
        self._remember_from(current)
        return self._nodes[best]

    def _remember_from(self, current: list[int]) -> None:
        """Begin a period at these values.

        With equal weights and all nodes within one turn of each other the greatest, once picked, is the least: the
        order of the falling values repeats for ever.
        """
        self._current = current
        self._base = list(current)
        self._repeats = self._equal and max(current) - min(current) < self._total
        self._turns = sorted(range(len(current)), key=lambda at: -current[at]) if self._repeats else []
        self._position = 0

    def _now(self) -> list[int]:
        """Return the values as they are after the repeated period's `_position` turns."""
        if not self._repeats:
            return list(self._current)
        current = [value + self._position * gain for value, gain in zip(self._base, self._values, strict=True)]
        for at in self._turns[: self._position]:
            current[at] -= self._total
        return current
