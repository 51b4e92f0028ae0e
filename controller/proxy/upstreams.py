"""`Upstreams`: what this process sends to, for every port of every snapshot it holds."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from controller.balancing.affinity import Keys
from controller.balancing.locality import Place
from controller.model.endpoints import Endpoint
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.seat import Seat
from controller.proxy.sharing import Sharing
from controller.proxy.timers import Timers
from controller.proxy.upstream import NodeHook, Upstream

Key = tuple[str, str]  # namespace, name

# As many as a backend may list by itself; a name with more answers is no backend but a mistake.
ADDRESSES = 256


class Upstreams:
    """Applies whole snapshots. `on_gone` and `on_returned` are handed to each Upstream.

    `watchers` are called after every change of what there is: the active checks and the resolver listen.
    """

    def __init__(
        self, seat: Seat, timers: Timers, on_gone: NodeHook, on_returned: NodeHook, sharing: Sharing | None = None
    ) -> None:
        self.watchers: list[Callable[[], None]] = []
        self.on_ejected: Callable[[Upstream, str], None] | None = None  # handed to each Upstream, too
        self.on_verdict: Callable[[Upstream, bool], None] | None = None
        self._seat = seat
        self._timers = timers
        self._on_gone = on_gone
        self._on_returned = on_returned
        self._sharing = sharing
        self._snapshots: dict[Key, Snapshot] = {}
        self._ports: dict[Key, dict[str, Upstream]] = {}
        self._keys: dict[Key, Keys] = {}
        self._answers: dict[str, tuple[str, ...]] = {}  # of the resolver, the last good ones

    def apply(self, snapshot: Snapshot) -> None:
        """Bring the object's upstreams to this state; those whose port is gone are closed."""
        self._snapshots[snapshot.key] = snapshot
        self._apply(snapshot)
        self._changed()

    def forget(self, key: Key) -> None:
        """The object is deleted."""
        self._snapshots.pop(key, None)
        self._keys.pop(key, None)
        for upstream in self._ports.pop(key, {}).values():
            upstream.close()
        self._changed()

    def rekey(self, key: Key, keys: Keys) -> None:
        """The session keys that all proxies of this object share."""
        self._keys[key] = keys
        for upstream in self._ports.get(key, {}).values():
            upstream.rekey(keys)

    def place(self, place: Place) -> None:
        """This process has learnt where it runs. What nobody knows ("") stays as it was given."""
        before = self._seat.place
        place = Place(node=place.node or before.node, zone=place.zone or before.zone)
        self._seat = replace(self._seat, place=place)
        for upstream in self:
            upstream.place(place)

    def filled(self, key: Key) -> Snapshot:
        """The object's snapshot with the resolver's answers in the hostnames' place."""
        snapshot = self._snapshots[key]
        ports = (self._with_answers(port) for port in snapshot.ports)
        return replace(
            snapshot,
            ports=tuple(
                replace(port, backends=tuple(replace(backend, hostname=None) for backend in port.backends))
                for port in ports
            ),
        )

    def keys_of(self, key: Key) -> Keys:
        return self._keys[key]

    def get(self, key: Key, port: str) -> Upstream | None:
        return self._ports.get(key, {}).get(port)

    def __iter__(self) -> Iterator[Upstream]:
        for ports in self._ports.values():
            yield from ports.values()

    @property
    def hostnames(self) -> frozenset[str]:
        """Names that backends want resolved."""
        return frozenset(
            backend.hostname
            for snapshot in self._snapshots.values()
            for port in snapshot.ports
            for backend in port.backends
            if backend.hostname is not None
        )

    def resolved(self, hostname: str, addresses: Sequence[str]) -> None:
        """A whole, good answer: it takes the place of the last one. Order and repetition don't matter."""
        answer = tuple(sorted(set(addresses)))[:ADDRESSES]
        if self._answers.get(hostname) == answer:
            return
        self._answers[hostname] = answer
        for snapshot in list(self._snapshots.values()):
            if any(backend.hostname == hostname for port in snapshot.ports for backend in port.backends):
                self._apply(snapshot)
                self.changed_answers(snapshot.key)
        self._changed()

    def changed_answers(self, key: Key) -> None:
        """The object's endpoints have changed without a snapshot. For who must pass it on."""

    def close(self) -> None:
        for key in list(self._ports):
            self.forget(key)

    def _apply(self, snapshot: Snapshot) -> None:
        ports = self._ports.setdefault(snapshot.key, {})
        for listed in snapshot.ports:
            port = self._with_answers(listed)
            known = ports.get(port.name)
            if known is not None:
                known.apply(port, snapshot)
                continue
            # Until the operator's come, keys of our own: tokens bind within this process, and nowhere else.
            keys = self._keys.setdefault(snapshot.key, Keys(secrets.token_bytes(32)))
            upstream = ports[port.name] = Upstream(port, snapshot, self._seat, self._timers, keys, self._sharing)
            upstream.on_gone, upstream.on_returned = self._on_gone, self._on_returned
            upstream.on_ejected, upstream.on_verdict = self.on_ejected, self.on_verdict
        for name in ports.keys() - {port.name for port in snapshot.ports}:
            ports.pop(name).close()

    def _with_answers(self, port: SnapshotPort) -> SnapshotPort:
        if not any(backend.hostname for backend in port.backends):
            return port
        return replace(port, backends=tuple(map(self._with_answer, port.backends)))

    def _with_answer(self, backend: SnapshotBackend) -> SnapshotBackend:
        if backend.hostname is None or backend.port is None:
            return backend
        endpoints = (
            Endpoint(id=f"{address}:{backend.port}", address=address, port=backend.port)
            for address in self._answers.get(backend.hostname, ())
        )
        return replace(backend, endpoints=tuple(endpoints))

    def _changed(self) -> None:
        for name in self._answers.keys() - self.hostnames:
            del self._answers[name]
        for watcher in self.watchers:
            watcher()
