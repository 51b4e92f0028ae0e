"""RoundRobin: smooth weighted round robin up to 64 endpoints, an EDF schedule above.

Position and lag survive every change: a set that did not change keeps its very schedule, any other starts from the
lags that the nodes carry. Resetting instead gives shares of nought to twenty-fold where many workers see few requests
between two updates.
"""

from __future__ import annotations

from math import ceil
from random import Random

from controller.balancing.edf import EdfSchedule
from controller.balancing.picker import CandidateSet, Options, Picker
from controller.balancing.rotation import Place, lags, ordered, running
from controller.balancing.shares import flat
from controller.balancing.smooth import SmoothRotation

SMOOTH = 64  # above, O(N) costs more than a tenth of a proxied request
PRE_PICKS = 1000  # a period may be as long as the sum of the weights


def round_robin(candidates: CandidateSet, options: Options, random: Random) -> Picker:
    weights, scope = flat(candidates), options.scope
    unchanged = running(weights, scope)
    if unchanged is not None:
        return unchanged  # through lag and back, rounding would change the sequence
    nodes = ordered(weights, options.seed)
    first_build = not any(scope in node.lag for node in nodes)
    rotation: SmoothRotation | EdfSchedule
    if len(nodes) > SMOOTH and len(set(weights.values())) > 1:
        rotation = EdfSchedule(nodes, weights, lags(nodes, scope, lambda: random.random() - 0.5))
    else:
        rotation = SmoothRotation(nodes, weights, lags(nodes, scope, lambda: 0.0))
        if first_build:
            period = ceil(sum(weights.values()) / min(weights.values()))
            rotation.skip(int(options.phase * min(PRE_PICKS, period)))
    for at, node in enumerate(nodes):
        node.lag[scope] = Place(rotation, at)
    return rotation
