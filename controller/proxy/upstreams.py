"""`Upstreams`: what this process sends to, for every port of every snapshot it holds."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from controller.balancing.affinity import Keys
from controller.model.snapshot import Snapshot
from controller.proxy.seat import Seat
from controller.proxy.timers import Timers
from controller.proxy.upstream import NodeHook, Upstream

Key = tuple[str, str]  # namespace, name


class Upstreams:
    """Applies whole snapshots. `on_gone` and `on_returned` are handed to each Upstream."""

    def __init__(self, seat: Seat, timers: Timers, on_gone: NodeHook, on_returned: NodeHook) -> None:
        self._seat = seat
        self._timers = timers
        self._on_gone = on_gone
        self._on_returned = on_returned
        self._ports: dict[Key, dict[str, Upstream]] = {}
        self._keys: dict[Key, Keys] = {}

    def apply(self, snapshot: Snapshot) -> None:
        """Bring the object's upstreams to this state; those whose port is gone are closed."""
        ports = self._ports.setdefault(snapshot.key, {})
        for port in snapshot.ports:
            known = ports.get(port.name)
            if known is not None:
                known.apply(port, snapshot)
                continue
            upstream = ports[port.name] = Upstream(
                port, snapshot, self._seat, self._timers, self._keys_of(snapshot.key)
            )
            upstream.on_gone, upstream.on_returned = self._on_gone, self._on_returned
        for name in ports.keys() - {port.name for port in snapshot.ports}:
            ports.pop(name).close()

    def forget(self, key: Key) -> None:
        """The object is deleted."""
        for upstream in self._ports.pop(key, {}).values():
            upstream.close()
        self._keys.pop(key, None)

    def rekey(self, key: Key, keys: Keys) -> None:
        """The session keys that all proxies of this object share."""
        self._keys[key] = keys
        for upstream in self._ports.get(key, {}).values():
            upstream.rekey(keys)

    def get(self, key: Key, port: str) -> Upstream | None:
        return self._ports.get(key, {}).get(port)

    def __iter__(self) -> Iterator[Upstream]:
        for ports in self._ports.values():
            yield from ports.values()

    def health(self, key: Key) -> tuple[int, int]:
        """Endpoints of the object that are usable, and known; an endpoint behind two ports counts twice."""
        ports = self._ports.get(key, {}).values()
        return sum(upstream.usable for upstream in ports), sum(upstream.known for upstream in ports)

    def close(self) -> None:
        for key in list(self._ports):
            self.forget(key)

    def _keys_of(self, key: Key) -> Keys:
        # Until the operator's come, tokens of our own: they bind within this process, and nowhere else.
        return self._keys.setdefault(key, Keys(secrets.token_bytes(32)))
