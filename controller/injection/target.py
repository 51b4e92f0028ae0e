"""`Target`: what a pod is told of one BalancedService, and what it is called there."""

from __future__ import annotations

import ipaddress

import msgspec

from controller.model.service import BalancedService, Protocol

LOOPBACK = ipaddress.ip_network("127.0.0.0/8")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    address: str  # loopback, the same in every pod
    ports: tuple[tuple[int, Protocol, str], ...]  # the last is the port's name

    @property
    def argument(self) -> str:
        """As the proxy's `--sidecar` takes it."""
        ports = ",".join(f"{number}/{protocol}/{name}" for number, protocol, name in self.ports)
        return f"{self.name}={self.address}:{ports}"

    def names(self, domain: str) -> list[str]:
        """All that a client in the same namespace may call it."""
        service = f"{self.name}.{self.namespace}.svc"
        return [self.name, f"{self.name}.{self.namespace}", service, f"{service}.{domain}"]


def target(service: BalancedService, address: str) -> Target | None:
    """None for what no sidecar serves: another mode, or an address that the operator hasn't given out yet."""
    if service.proxy.mode != "Sidecar" or not _is_loopback(address):
        return None
    ports = tuple((port.port, port.protocol, port.name) for port in service.ports)
    return Target(namespace=service.namespace, name=service.name, address=address, ports=ports)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in LOOPBACK
    except ValueError:
        return False
