"""Where a request is tried again when it has tried all that is near: the nearest rung of its level with anything new.

The pick is the same for every policy, since it is rare: by the key where keys count, else the less loaded of two draws.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random

from controller.balancing import weights
from controller.balancing.draw import WeightedDraw
from controller.balancing.node import Node
from controller.balancing.rendezvous import Rendezvous

Rungs = Sequence[Iterable[weights.Share]]  # the nearest first; each holds the nearer ones, too


def untried(rungs: Rungs, tried: Collection[Node]) -> dict[Node, int]:
    """Those of the nearest rung that are neither tried nor full, with their weights; none if no rung has any."""
    for shares in rungs:
        found: dict[Node, int] = {}
        for group in weights.groups(shares):
            for node, weight in group.candidates:
                if node not in tried and not node.full:
                    found[node] = found.get(node, 0) + weight
        if found:
            return found
    return {}


def pick(among: Mapping[Node, int], key: bytes | None, random: Random) -> Node:
    """One of these, of which there are some. The same for the same key."""
    nodes = list(among)
    if key is not None:
        return nodes[Rendezvous([node.id for node in nodes], list(among.values())).first(key)]
    draw = WeightedDraw(among, random)
    return min((nodes[draw.draw()] for _ in range(2)), key=lambda node: node.load() / among[node])
