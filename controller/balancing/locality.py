"""Locality: the nearest endpoints of one backend, as long as one of them may be picked; wider ones for who tries again.

Hints are followed by kube-proxy's rule (KEP-3015, KEP-2433): they count only if every endpoint has one, so that a
half-written set of hints never hides endpoints. `Zone` and `Node` compare the endpoint's own place instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from controller.balancing.node import Node
from controller.model.service import Prefer

Rung = Literal["node", "zone", "all"]
RUNGS: tuple[Rung, ...] = ("node", "zone", "all")  # the nearest first


class Place(NamedTuple):
    """Where this proxy runs; "" = unknown, and then nothing is near."""

    zone: str = ""
    node: str = ""


def ladder(
    nodes: Sequence[Node], pickable: Collection[Node], prefer: Prefer, place: Place
) -> tuple[tuple[Rung, Sequence[Node]], ...]:
    """The rungs that hold a pickable one, the nearest first, each in the given order; all nodes are the last."""
    near = tuple(each for each in _rungs(nodes, prefer, place) if any(node in pickable for node in each[1]))
    return (*near, ("all", nodes))


def _rungs(nodes: Sequence[Node], prefer: Prefer, place: Place) -> Iterator[tuple[Rung, list[Node]]]:
    if prefer == "Service":
        if all(node.endpoint.node_hints for node in nodes):
            yield "node", [node for node in nodes if place.node in node.endpoint.node_hints]
        if all(node.endpoint.zone_hints for node in nodes):
            yield "zone", [node for node in nodes if place.zone in node.endpoint.zone_hints]
    if prefer == "Node" and place.node:
        yield "node", [node for node in nodes if node.endpoint.node == place.node]
    if prefer in ("Node", "Zone") and place.zone:
        yield "zone", [node for node in nodes if node.endpoint.zone == place.zone]
