"""Share groups: first a backend by its weight, then the policy inside it.

In-flight over weight alone cannot keep a split between backends: an idle light endpoint beats a heavy one with a
single request, and 90/10 becomes 67/33. So the load-aware policies draw the group first, by weight and exactly.
One group, the usual case, costs nothing: its picker stands alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, chain
from random import Random

from controller.balancing.node import Node
from controller.balancing.picker import Candidate, CandidateSet, Group, Picker, PickRequest


def weights(candidates: Iterable[Candidate]) -> dict[Node, int]:
    """Return the weight of each node; a node that is listed twice has the sum."""
    found: dict[Node, int] = {}
    for node, weight in candidates:
        found[node] = found.get(node, 0) + weight
    return found


def flat(candidates: CandidateSet) -> dict[Node, int]:
    """Return the whole set's weights without its groups, for the policies whose shares are exact over one flat set."""
    return weights(chain.from_iterable(group.candidates for group in candidates.groups))


def by_group(candidates: CandidateSet, random: Random, inside: Callable[[Mapping[Node, int]], Picker]) -> Picker:
    """Return a picker that draws a group by weight and lets `inside` (made from its nodes and weights) choose."""
    pickers = [inside(weights(group.candidates)) for group in candidates.groups]
    return pickers[0] if len(pickers) == 1 else ShareGroups(candidates.groups, pickers, random)


class ShareGroups:
    """Two groups or more. A group without an untried node is left out of the draw, unless none has one."""

    __slots__ = ("_cumulative", "_last", "_nodes", "_pickers", "_random", "_total")

    def __init__(self, groups: tuple[Group, ...], pickers: list[Picker], random: Random) -> None:
        self._pickers = pickers
        self._nodes = [{candidate.node for candidate in group.candidates} for group in groups]
        self._cumulative = list(accumulate(group.weight for group in groups))
        self._total = self._cumulative[-1]
        self._last = len(groups) - 1
        self._random = random.random

    def pick(self, request: PickRequest) -> Node:
        tried = request.tried
        if tried:
            open_groups = [i for i, nodes in enumerate(self._nodes) if any(node not in tried for node in nodes)]
            if len(open_groups) in range(1, len(self._nodes)):
                return self._pickers[self._among(open_groups)].pick(request)
        at = bisect_right(self._cumulative, self._random() * self._total, 0, self._last)
        return self._pickers[at].pick(request)

    def _among(self, groups: list[int]) -> int:
        cumulative = self._cumulative
        bounds = list(accumulate(cumulative[i] - (cumulative[i - 1] if i else 0) for i in groups))
        return groups[bisect_right(bounds, self._random() * bounds[-1], 0, len(bounds) - 1)]
