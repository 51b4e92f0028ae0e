"""What `translate` sees: a whole state of the world, indexed so that one object's part is found at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from controller.model.endpoints import Grant, ServiceRecord, Slice
from controller.model.service import BalancedService, Invalid

Key = tuple[str, str]  # (namespace, name)
LISTEN = range(20_000, 32_768)  # what proxies in pods listen on; Linux gives out the ports above to connections


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What an object's metadata says, and what its status has already given out. Made by `given`."""

    uid: str = ""
    generation: int = 0
    listen: dict[str, int] = {}  # by port name, retired ports included: a number is never used again
    address: str = ""  # the sidecars' loopback address


class BackendHealth(msgspec.Struct, frozen=True, kw_only=True):
    known: int
    usable: int


class ProxyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The newest that one connected proxy said of one object."""

    proxy: str  # the pod's uid
    version: str = ""  # of the last snapshot that it answered to; "" when it answered to none yet
    generation: int = 0  # of the object in that snapshot; 0 when unknown
    error: str = ""  # why it refused that version; "" when it took it
    age: float = 0.0  # seconds since its last sign of life, or since it was first seen
    health: dict[str, BackendHealth] = {}  # by backend


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """A state of the world; never changed by who reads it.

    Each mapping is read by key only, so that an object costs the same beside ten others as beside ten thousand.
    """

    objects: Mapping[Key, BalancedService | Invalid] = {}
    given: Mapping[Key, Given] = {}
    services: Mapping[Key, ServiceRecord] = {}
    slices: Mapping[Key, Collection[Slice]] = {}  # by the Service that they belong to
    grants: Mapping[str, Collection[Grant]] = {}  # by the namespace that they are in
    # Sidecar addresses by namespace: address -> names of the objects whose status claims it. One, but for a race.
    claims: Mapping[str, Mapping[str, Collection[str]]] = {}
    conflicts: Mapping[Key, Collection[str]] = {}  # same-named children that are not ours, as `Service shop`
    reports: Mapping[Key, Collection[ProxyReport]] = {}
    replicas: Mapping[Key, int] = {}  # pods of the proxies' Deployment, from its status
    watched: frozenset[str] | None = None  # namespaces; None = all
    standalone: bool = False  # no cluster: proxies listen on the ports themselves, whatever the mode


def given(item: Mapping[str, Any]) -> Given:
    """From a raw BalancedService. Status is ours, but anyone with the right may write it: nonsense counts as absent."""
    meta, status = _map(item.get("metadata")), _map(item.get("status"))
    proxy, generation = _map(status.get("proxy")), meta.get("generation")
    listen: dict[str, int] = {}
    for port in map(_map, proxy.get("ports") or ()):
        name, number = port.get("name"), port.get("listen")
        if isinstance(name, str) and isinstance(number, int) and number in LISTEN and number not in listen.values():
            listen[name] = number
    return Given(
        uid=str(meta.get("uid") or ""),
        generation=generation if isinstance(generation, int) else 0,
        listen=listen,
        address=str(_map(status.get("sidecar")).get("address") or ""),
    )


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
