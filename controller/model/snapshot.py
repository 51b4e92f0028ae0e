"""`Snapshot`: all that a proxy needs to know of one BalancedService, and nothing that differs between replicas.

Canonical: equal inputs give equal bytes, so `version` (SHA-256 of them) is the same in every replica, and an equal
version is no change. Unknown fields are ignored when decoding: neighbouring versions work together.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from controller.model.endpoints import Endpoint
from controller.model.service import (
    Affinity,
    Algorithm,
    Health,
    Limits,
    Locality,
    Mode,
    Protocol,
    Retries,
    Struct,
    Timeouts,
    WeightPer,
)

SCHEMA = 1


class SnapshotBackend(Struct, frozen=True, kw_only=True):
    """One backend as seen through one port: its endpoints, sorted by id."""

    name: str
    weight: int
    weight_per: WeightPer
    priority: int = 0
    endpoints: tuple[Endpoint, ...] = ()
    # Set for `hostname` and ExternalName backends: the proxy resolves it and makes the endpoints itself.
    hostname: str | None = None
    port: int | None = None


class SnapshotPort(Struct, frozen=True, kw_only=True):
    name: str
    port: int  # what clients connect to
    listen: int  # what the proxy listens on: `port` itself, or 20000 + n in a Gateway
    protocol: Protocol = "HTTP"
    backends: tuple[SnapshotBackend, ...] = ()


class SnapshotProxy(Struct, frozen=True, kw_only=True):
    """The part of `spec.proxy` that acts inside a proxy."""

    accept_grace: float = 5.0
    drain: float = 30.0
    trusted_proxies: tuple[str, ...] = ()
    access_log: Literal["Disabled", "JSON"] = "Disabled"
    debug_key: str | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA
    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    mode: Mode = "Gateway"
    address: str = ""  # Sidecar: the loopback address of the pod to listen on
    ports: tuple[SnapshotPort, ...] = ()
    algorithm: Algorithm = Algorithm()
    affinity: Affinity | None = None
    retries: Retries = Retries()
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    request_header_bytes: int = 65536
    max_request_body_bytes: int = 0
    health: Health = Health()
    locality: Locality = Locality()
    proxy: SnapshotProxy = SnapshotProxy()

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    def encode(self) -> bytes:
        """Canonical JSON: fields in the order of their definition, mappings sorted."""
        return _ENCODER.encode(self)

    @property
    def version(self) -> str:
        return "sha256:" + hashlib.sha256(self.encode()).hexdigest()


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Snapshot)


def decode(data: bytes) -> Snapshot:
    """The inverse of `encode`. Raises `msgspec.ValidationError` or `msgspec.DecodeError`."""
    return _DECODER.decode(data)
