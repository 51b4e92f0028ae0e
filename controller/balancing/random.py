"""Random: a weighted draw per request, by cumulative sums and bisection. No state: nothing is stale or in step."""

from __future__ import annotations

from random import Random

from controller.balancing.draw import WeightedDraw
from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, Options, Picker, PickRequest
from controller.balancing.shares import flat


def weighted_random(candidates: CandidateSet, options: Options, random: Random) -> Picker:
    return WeightedRandom(WeightedDraw(flat(candidates), random))


class WeightedRandom:
    """O(log N) a pick; shares are exact over one flat set, so groups need no draw of their own."""

    __slots__ = ("_draw",)

    def __init__(self, draw: WeightedDraw) -> None:
        self._draw = draw

    def pick(self, request: PickRequest) -> Node:
        draw = self._draw
        at = draw.untried(request.tried) if request.tried else -1
        return draw.nodes[at if at >= 0 else draw.draw()]
