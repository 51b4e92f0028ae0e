"""Which Nodes an upstream has: one per identity, kept while listed, while busy, and a while after.

State belongs to the identity (the pod's uid, else address and port), so a pod that stays keeps what was learnt about
it across any number of updates, and a new pod on an old address inherits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from controller.balancing.eligible import Source
from controller.balancing.node import Node
from controller.model.endpoints import Endpoint
from controller.model.snapshot import SnapshotBackend

KEPT = 300.0  # seconds: a pod that comes back within five minutes finds its state
KEPT_AT_MOST = 1024  # idle Nodes that are listed no more: a churning workload must not fill the memory

_RANK = {"PARKED": 0, "DRAINING": 1, "ACTIVE": 2}


class Change(msgspec.Struct, frozen=True):
    """What one update did to the Nodes."""

    gone: tuple[Node, ...]  # in no slice any more
    returned: tuple[Node, ...]  # the same identity is listed again
    moved: tuple[Node, ...]  # the same identity has another address
    lost: bool  # some Node may take less than before: to be acted on at once


class Rest(NamedTuple):
    """The lag of a Node that is gone: the number alone, so that no rotation stays in memory for it."""

    lag: float

    def turns(self) -> float:
        return self.lag


def settle(node: Node) -> None:
    """Let go of the rotation that a Node stood in."""
    node.lag = {scope: Rest(lag.turns()) for scope, lag in node.lag.items()}


class Membership:
    """`make` builds a Node for an identity that is new."""

    def __init__(self, make: Callable[[Endpoint, float], Node]) -> None:
        self.sources: tuple[Source, ...] = ()
        self._make = make
        self._listed: dict[str, Node] = {}
        self._gone: dict[str, tuple[Node, float]] = {}  # since when, the oldest first

    def __iter__(self) -> Iterator[Node]:
        """Every Node that is known, listed ones first."""
        yield from self._listed.values()
        yield from (node for node, _ in self._gone.values())

    def __contains__(self, node: Node) -> bool:
        """Whether it is listed."""
        return self._listed.get(node.id) is node

    def find(self, identity: str) -> Node | None:
        """The listed Node of this identity."""
        return self._listed.get(identity)

    @property
    def listed(self) -> Sequence[Node]:
        return tuple(self._listed.values())

    def update(self, backends: Sequence[SnapshotBackend], now: float) -> Change:
        """Take over a whole state. `now`: seconds, monotonic."""
        wanted, places = _by_identity(backends)
        before, listed = self._listed, {}
        returned, moved, lost = [], [], False
        for identity, endpoint in wanted.items():
            node = before.get(identity)
            if node is None and identity in self._gone:
                node, _ = self._gone.pop(identity)
                returned.append(node)
                _renew(node, endpoint, now, was_active=False)
            elif node is None:
                node = self._make(endpoint, now)
            elif node.endpoint != endpoint:
                lost = lost or _RANK[endpoint.state] < _RANK[node.endpoint.state]
                if (node.endpoint.address, node.endpoint.port) != (endpoint.address, endpoint.port):
                    moved.append(node)
                _renew(node, endpoint, now, was_active=node.endpoint.state == "ACTIVE")
            listed[identity] = node
        gone = tuple(node for identity, node in before.items() if identity not in listed)
        self._gone.update((node.id, (node, now)) for node in gone)
        self._listed = listed
        sources = tuple(
            Source(
                backend.name,
                backend.weight,
                backend.weight_per,
                backend.priority,
                tuple(listed[identity] for identity in places[backend.name]),
            )
            for backend in backends
        )
        lost = lost or bool(gone) or bool(_standing(self.sources) - _standing(sources))
        self.sources = sources
        return Change(gone, tuple(returned), tuple(moved), lost)

    def purge(self, now: float) -> tuple[Node, ...]:
        """Forget Nodes that are gone, idle, and out of time or over the bound; return them."""
        over = len(self._gone) - KEPT_AT_MOST
        dropped = []
        for identity, (node, since) in list(self._gone.items()):
            if node.inflight == 0 and (now - since >= KEPT or over > 0):
                del self._gone[identity]
                over -= 1
                dropped.append(node)
        return tuple(dropped)


def _standing(sources: Sequence[Source]) -> set[tuple[str, int]]:
    return {(source.name, source.priority) for source in sources if source.weight}


def _renew(node: Node, endpoint: Endpoint, now: float, *, was_active: bool) -> None:
    if endpoint.state == "ACTIVE" and not was_active:
        node.since = now
    node.endpoint = endpoint


def _by_identity(backends: Sequence[SnapshotBackend]) -> tuple[dict[str, Endpoint], dict[str, dict[str, None]]]:
    """The endpoint of each identity (the better condition where it is listed twice), and each backend's identities.

    One pod under two ports is two endpoints: the later one's identity gets the port.
    """
    wanted: dict[str, Endpoint] = {}
    places: dict[str, dict[str, None]] = {}
    for backend in backends:
        identities = places.setdefault(backend.name, {})
        for endpoint in backend.endpoints:
            known = wanted.get(endpoint.id)
            if known is not None and known.port != endpoint.port:
                endpoint = msgspec.structs.replace(endpoint, id=f"{endpoint.id}:{endpoint.port}")
                known = wanted.get(endpoint.id)
            if known is None or _RANK[endpoint.state] > _RANK[known.state]:
                wanted[endpoint.id] = endpoint
            identities[endpoint.id] = None
    return wanted, places
