"""The parent's upstreams: nothing is picked here, workers' outcomes are judged, and changes go on to the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.balancing.affinity import Keys
from controller.balancing.locality import Place
from controller.balancing.node import Kind, Node
from controller.model.snapshot import Snapshot
from controller.proxy.block import Slots
from controller.proxy.messages import Heard, Placed, Rekey, Stand, State
from controller.proxy.seat import Seat
from controller.proxy.sharing import Deciding
from controller.proxy.sidecar import Withdrawn
from controller.proxy.timers import LoopTimers
from controller.proxy.upstream import Upstream
from controller.proxy.upstreams import Key, Upstreams

if TYPE_CHECKING:
    from controller.proxy.fleet import Fleet


class LedUpstreams(Upstreams):
    """`fleet` passes on what is decided."""

    def __init__(self, seat: Seat, fleet: Fleet, slots: Slots) -> None:
        self._deciding = Deciding(fleet.block, slots)
        super().__init__(seat, LoopTimers(), _nothing, _nothing, self._deciding)
        self._fleet = fleet
        self._slots = slots

    def of(self, key: Key) -> tuple[Upstream, ...]:
        """Those of one object."""
        return tuple(self._ports.get(key, {}).values())

    def state(self, key: Key) -> State:
        """One object as workers are told of it."""
        keys = self.keys_of(key)
        return State(
            snapshot=self.filled(key),
            withdrawn=isinstance(self._snapshots[key], Withdrawn),
            keys=(keys.current, keys.previous),
            slots={upstream.name: self._slots.of(upstream.name) for upstream in self.of(key)},
        )

    def apply(self, snapshot: Snapshot) -> None:
        super().apply(snapshot)
        for upstream in self.of(snapshot.key):
            upstream.on_standing = self._stood

    def rekey(self, key: Key, keys: Keys) -> None:
        super().rekey(key, keys)
        self._fleet.broadcast(Rekey(key, (keys.current, keys.previous)))

    def place(self, place: Place) -> None:
        super().place(place)
        self._fleet.broadcast(self.placed)

    @property
    def placed(self) -> Placed:
        """Where this pod runs, as workers are told."""
        known = self._seat.place
        return Placed(known.zone, known.node)

    def changed_answers(self, key: Key) -> None:
        self._fleet.push(key)

    def hear(self, worker: int, message: Heard) -> None:
        """Judge what a worker has met with."""
        upstreams = {upstream.name: upstream for upstream in self}
        for name, identity, now, kind, seconds, good in message.outcomes:
            node = upstreams[name].find(identity) if name in upstreams else None
            if node is not None:
                if kind != Kind.OK.value:
                    self._deciding.hear(node, worker, good)
                upstreams[name].outlier.observe(node, now, Kind(kind), seconds, None)

    def _stood(self, upstream: Upstream) -> None:
        self._fleet.broadcast(Stand(upstream.name, upstream.standings()))


def _nothing(upstream: Upstream, node: Node) -> None:
    """No connections and no clocks are here."""
