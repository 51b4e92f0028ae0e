"""`Lanes`: those in force, by object and port, and those whose port is gone, for as long as a client is on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from controller.balancing.node import Node
from controller.proxy.lane import Lane
from controller.proxy.sharing import Carrying
from controller.proxy.upstream import Upstream

Key = tuple[str, str]  # namespace, name of an object


class Lanes:
    """Iterates over all of them, those in force first. A lane that nobody is on when its port goes, goes with it."""

    def __init__(self, sharing: Carrying | None) -> None:
        self._sharing = sharing
        self._in_force: dict[tuple[Key, str], Lane] = {}
        self._leaving: set[Lane] = set()
        self._by_upstream: dict[Upstream, Lane] = {}

    def __iter__(self) -> Iterator[Lane]:
        yield from tuple(self._in_force.values())
        yield from tuple(self._leaving)

    def find(self, key: Key, port: str) -> Lane | None:
        """The lane in force."""
        return self._in_force.get((key, port))

    def add(self, key: Key, port: str, lane: Lane) -> None:
        self._in_force[key, port] = self._by_upstream[lane.upstream] = lane

    def retire(self, key: Key, kept: Collection[str] = ()) -> None:
        """Of the object's ports only `kept` are left; their listeners have closed."""
        for owner, port in [each for each in self._in_force if each[0] == key and each[1] not in kept]:
            lane = self._in_force.pop((owner, port))
            self._leaving.add(lane)
            lane.leave()
            self.settle(lane)

    def settle(self, lane: Lane) -> None:
        """A client of the lane is gone."""
        if lane in self._leaving and not lane.connections:
            self._leaving.discard(lane)
            del self._by_upstream[lane.upstream]
            lane.close()
            name = lane.upstream.name
            if self._sharing is not None and all(other.upstream.name != name for other in self):
                self._sharing.forget(name)

    def gone(self, upstream: Upstream, node: Node) -> None:
        if upstream in self._by_upstream:
            self._by_upstream[upstream].gone(node)

    def returned(self, upstream: Upstream, node: Node) -> None:
        if upstream in self._by_upstream:
            self._by_upstream[upstream].returned(node)

    def sweep(self, now: float) -> None:
        """Close idle connections whose time is over, and let go of lanes that their last client has changed."""
        for lane in self:
            for pool in lane.pools:
                pool.sweep(now)
            self.settle(lane)
