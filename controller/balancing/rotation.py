"""What the two schedules of RoundRobin share: the order of their nodes, and the lag that outlives them.

A node's *lag* is the turns due to it minus the turns it had: free of scale, so it survives any change of weights or
members, and the step from one schedule to the other. Counters kept as integers or as deadlines do not: of four equal
endpoints, one ending a ramp from 983 to 1000 would get 983 picks in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from xxhash import xxh64_intdigest

from controller.balancing.node import Node
from controller.balancing.picker import PickRequest


class Rotation(Protocol):
    """A live schedule. `weights` is what it was built with; `lag` is of the node at that index of its own."""

    weights: Mapping[Node, int]

    def lag(self, at: int) -> float: ...

    def pick(self, request: PickRequest) -> Node: ...


class Place(NamedTuple):
    """Where a node stands in a rotation: what is kept on the node."""

    rotation: Rotation
    at: int

    def turns(self) -> float:
        return self.rotation.lag(self.at)


def running(weights: Mapping[Node, int], scope: str) -> Rotation | None:
    """Return the rotation that all these nodes, and no others, stand in with these very weights."""
    rotations = {place.rotation if isinstance(place := node.lag.get(scope), Place) else None for node in weights}
    rotation = rotations.pop()
    return rotation if not rotations and rotation is not None and rotation.weights == weights else None


def ordered(weights: Mapping[Node, int], seed: int) -> list[Node]:
    """Return the pod's own permutation of the nodes: the same in its workers, little disturbed by a change."""
    return sorted(weights, key=lambda node: (xxh64_intdigest(node.id.encode(), seed), node.id))


def lags(nodes: list[Node], scope: str, newcomer: Callable[[], float]) -> list[float]:
    """Return the lag of each node, of sum zero: what it has, or what `newcomer` gives."""
    found = [node.lag[scope].turns() if scope in node.lag else newcomer() for node in nodes]
    mean = sum(found) / len(found)
    return [lag - mean for lag in found]
