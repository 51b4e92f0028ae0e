"""The proxy beside one client: where it listens, and what it does before and after its services' configurations.

Nothing here depends on the object's present mode: a pod keeps its sidecar, and so its names' addresses, while the
object goes from `Sidecar` to another mode.
"""

from __future__ import annotations

import re
from typing import get_args

import msgspec
from msgspec.structs import asdict, replace

from controller.model.service import Protocol
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort

_SERVICE = re.compile(r"(?P<name>[a-z0-9-]{1,63})=(?P<address>127(\.[0-9]{1,3}){3}):(?P<ports>.+)")
_PORT = re.compile(r"(?P<number>[0-9]{1,5})/(?P<protocol>[A-Z]+)/(?P<name>[a-z0-9-]{1,63})")


class SidecarPort(msgspec.Struct, frozen=True):
    number: int
    protocol: Protocol
    name: str


class SidecarService(msgspec.Struct, frozen=True):
    """One service as the pod was told of it when it was made."""

    name: str
    address: str  # of the pod's loopback
    ports: tuple[SidecarPort, ...]


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a proxy a sidecar."""

    services: tuple[SidecarService, ...]
    domain: str  # the cluster's
    start_timeout: float  # seconds without a configuration, after which requests go to the ordinary Service
    forward_proxy: tuple[str, int] | None


class Withdrawn(Snapshot, frozen=True, kw_only=True):
    """Of an object that is gone: what comes to its ports is answered, and never sent to what is remembered."""


def service(text: str) -> SidecarService:
    """`shop=127.64.0.1:80/HTTP/http,9000/TCP/raw`. Raises ValueError."""
    found = _SERVICE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not NAME=127.A.B.C:PORTS")
    ports = []
    for each in found["ports"].split(","):
        port = _PORT.fullmatch(each)
        if port is None or port["protocol"] not in get_args(Protocol) or not 0 < int(port["number"]) <= 65535:
            raise ValueError(f"{each!r} is not NUMBER/PROTOCOL/NAME, as in 80/HTTP/http")
        ports.append(SidecarPort(int(port["number"]), "TCP" if port["protocol"] == "TCP" else "HTTP", port["name"]))
    return SidecarService(found["name"], found["address"], tuple(ports))


def beside(snapshot: Snapshot, service: SidecarService) -> Snapshot:
    """The same, listened for where this pod's client looks for it."""
    ports = tuple(replace(port, listen=port.port) for port in snapshot.ports)
    return replace(snapshot, mode="Sidecar", address=service.address, ports=ports)


def pass_through(namespace: str, service: SidecarService, domain: str) -> Snapshot:
    """Every port goes to the Service's own address: what a client without a sidecar would do.

    The name is asked of DNS; /etc/hosts leads it back here.
    """
    hostname = f"{service.name}.{namespace}.svc.{domain}"
    return Snapshot(
        namespace=namespace,
        name=service.name,
        mode="Sidecar",
        address=service.address,
        ports=tuple(
            SnapshotPort(
                name=port.name,
                port=port.number,
                listen=port.number,
                protocol=port.protocol,
                backends=(
                    SnapshotBackend(
                        name="service", weight=1, weight_per="Backend", hostname=hostname, port=port.number
                    ),
                ),
            )
            for port in service.ports
        ),
    )


def withdrawn(snapshot: Snapshot) -> Withdrawn:
    fields = asdict(snapshot) | {"ports": tuple(replace(port, backends=()) for port in snapshot.ports)}
    return Withdrawn(**fields)
