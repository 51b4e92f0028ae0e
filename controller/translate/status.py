"""The status of one object, as values; `as_dict` makes what server-side apply sends."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A condition without its times: the writer keeps `lastTransitionTime` while `status` stays."""

    type: Literal["Accepted", "ResolvedRefs", "Programmed", "Ready"]
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    resolved: bool
    active: int = 0
    draining: int = 0
    share: str = "0.0%"


class PortStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    listen: int


class ProxyStatus(msgspec.Struct, frozen=True, kw_only=True):
    replicas: int = 0
    programmed: int = 0
    version: str = ""
    selector: str = ""
    ports: tuple[PortStatus, ...] = ()


class SidecarStatus(msgspec.Struct, frozen=True, kw_only=True):
    address: str


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    observed_generation: int
    facts: tuple[Fact, ...]  # Accepted, ResolvedRefs, Programmed, Ready
    backends: tuple[BackendStatus, ...] = ()
    endpoints: str = ""
    proxy: ProxyStatus | None = None
    sidecar: SidecarStatus | None = None
    address: str = ""

    def as_dict(self) -> dict[str, Any]:
        """All of `status` but `conditions`, which the writer makes from `facts`."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        del fields["facts"]
        return fields
