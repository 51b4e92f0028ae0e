"""An EDF schedule with eligibility: weighted round robin in O(log N).

Each node has a start (when its next turn is due) and a deadline (start + 1/share). Only nodes whose start has come may
be picked, the least deadline first: that bounds the excess in any window, where plain earliest-deadline-first gives one
heavy node among a hundred light ones a run of half of its period (Stiliadis and Varma's WF2Q is the same idea).
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace

from controller.balancing.node import Node
from controller.balancing.picker import PickRequest


class EdfSchedule:
    """`nodes` in their order, with the `lags` that they start from (in turns, of sum zero); time counts picks."""

    __slots__ = ("_nodes", "_now", "_periods", "_ready", "_starts", "_wait", "weights")

    def __init__(self, nodes: list[Node], weights: Mapping[Node, int], lags: list[float]) -> None:
        self.weights = weights
        self._nodes = nodes
        self._now = 0.0
        total = sum(weights.values())
        self._periods = [total / weights[node] for node in nodes]
        self._starts = [-lag * period for lag, period in zip(lags, self._periods, strict=True)]
        self._ready: list[tuple[float, int]] = []  # (deadline, index)
        self._wait = [(start, at) for at, start in enumerate(self._starts)]  # (start, index)
        heapify(self._wait)

    def lag(self, at: int) -> float:
        return (self._now - self._starts[at]) / self._periods[at]

    def pick(self, request: PickRequest) -> Node:
        if request.tried:
            return self._untried(request)
        return self._nodes[self._next()]

    def _release(self) -> None:
        """Move the nodes whose turn is due to `ready`."""
        wait, ready, now, periods = self._wait, self._ready, self._now, self._periods
        while wait and wait[0][0] <= now:
            start, at = heappop(wait)
            heappush(ready, (start + periods[at], at))

    def _next(self) -> int:
        wait, now = self._wait, self._now
        if wait and wait[0][0] <= now:
            self._release()
        if self._ready:
            deadline, at = heappop(self._ready)
            heappush(wait, (deadline, at))
        else:
            now, at = wait[0]
            deadline = now + self._periods[at]
            heapreplace(wait, (deadline, at))
        self._starts[at] = deadline
        self._now = now + 1.0
        return at

    def _untried(self, request: PickRequest) -> Node:
        tried, nodes, before = request.tried, self._nodes, self._now
        if all(node in tried for node in nodes):
            return nodes[self._next()]
        aside = []
        self._release()
        at = -1
        for queue in (self._ready, self._wait):
            while queue and at < 0:
                _, found = heappop(queue)
                if nodes[found] in tried:
                    aside.append(found)
                else:
                    at = found
        self._now = max(before, self._starts[at])
        self._starts[at] += self._periods[at]
        heappush(self._wait, (self._starts[at], at))
        self._now += 1.0
        for found in aside:  # they neither gain nor lose
            self._starts[found] += self._now - before
            heappush(self._wait, (self._starts[found], found))
        return nodes[at]
