"""Bounded load (Mirrokni, Thorup, Zadimoghaddam 2018): no endpoint carries more than its part of the mean, times b.

cap = max(min_slots, ⌈b · (F + 1) · w/W⌉), F the attempts in flight and W the weight of the eligible. As b ≥ 1 the caps
sum to more than F, so some endpoint is always under its own. Without `min_slots` two overlapping requests of one key
would be split at low load.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.balancing.node import Node, Total

OTHERS_AGE = 0.005  # seconds that the other workers' sum may be old, as their counts are themselves


class Bound:
    """`percent` is 100·b; 0 = no bound.

    F is a running total on the nodes (`Total`), so the check costs O(1). It is begun by the first check that needs it:
    where loads stay under `min_slots`, no attempt pays for it.
    """

    __slots__ = ("_least", "_nodes", "_others", "_percent", "_scope", "_stamp", "_total", "_weight")

    def __init__(self, weights: Mapping[Node, int], percent: int, min_slots: int, scope: str) -> None:
        self._nodes = weights
        self._weight = sum(weights.values())
        self._percent = percent
        self._least = min_slots
        self._scope = scope
        self._total: Total | None = None
        self._others = 0
        self._stamp = float("-inf")

    def admits(self, node: Node, now: float) -> bool:
        """Whether one more attempt keeps the node within its cap: f + 1 ≤ ⌈x⌉ is f < x, in integers."""
        load = node.load()
        if load < self._least or not self._percent:
            return True
        return self._percent * (self._in_flight(now) + 1) * self._nodes[node] > 100 * self._weight * load

    def _in_flight(self, now: float) -> int:
        if self._total is None:
            self._total = Total(self._scope, sum(node.inflight for node in self._nodes))
            for node in self._nodes:
                kept = (total for total in node.totals if total.scope != self._scope)
                node.totals = (*kept, self._total)
        if now - self._stamp >= OTHERS_AGE:
            self._others = sum(node.others for node in self._nodes)
            self._stamp = now
        return self._total.inflight + self._others

    def least(self, nodes: list[Node]) -> Node:
        """Return the first with the least load over weight; with no bound, the first."""
        if not self._percent:
            return nodes[0]
        return min(nodes, key=lambda node: (node.inflight + node.others) / self._nodes[node])
