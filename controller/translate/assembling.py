"""One object's snapshot, its status, and which ports its Service may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from controller.model.conditions import Fact
from controller.model.endpoints import ServiceRecord
from controller.model.rules import LOOP
from controller.model.service import GROUP, Backend, BalancedService, Invalid
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort, SnapshotProxy
from controller.translate import facts
from controller.translate.allotting import listen_numbers, loopback_address
from controller.translate.counting import backend_rows, column, count
from controller.translate.fleet import Fleet, fleet, heard
from controller.translate.inputs import Given, Inputs, Key
from controller.translate.resolving import Target, loop, resolve
from controller.translate.status import PortStatus, ProxyStatus, SidecarStatus, Status, told


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """One object's results."""

    snapshot: Snapshot | None  # None = no change: the last good one keeps serving, and no child is written
    status: Status
    admitted: tuple[str, ...] = ()  # the ports that its Service may have: a Gateway's, those that ready proxies serve
    bridged: bool = False  # a Gateway's Service stands for the pods themselves until a proxy is ready


class _Allotted(msgspec.Struct, frozen=True):
    """What the object keeps while it lives, in whatever mode it is now."""

    listen: dict[str, int]
    address: str


def translate_all(inputs: Inputs) -> Mapping[Key, Translated]:
    return {key: translate(inputs, key) for key in sorted(inputs.objects)}


def translate(inputs: Inputs, key: Key) -> Translated:
    """Translate the object at `key`. Raises KeyError when `inputs.objects` lacks it."""
    service = inputs.objects[key]
    given = inputs.given.get(key, Given())
    if isinstance(service, Invalid):
        faults = [f"{fault.path}: {fault.message}" for fault in service.faults]
        looped = any(fault.message == LOOP for fault in service.faults)
        return _rejected(inputs, key, given, facts.rejected("Invalid" if looped else "Unsupported", told(faults)))
    if inputs.standalone:  # there is no Service to be reached by, and no pod whose loopback could be listened on
        service = replace(service, proxy=replace(service.proxy, mode="External"))
    back = loop(inputs, service)
    if back is not None:
        return _rejected(inputs, key, given, facts.rejected("Invalid", back))

    allotted = _allot(inputs, service, given)
    targets = [resolve(inputs, service, backend) for backend in service.backends]
    snapshot = _snapshot(service, allotted, targets)
    front = _front(inputs, service)
    proxies = fleet(inputs, service, snapshot.version, front)
    counts = [count(backend, found, proxies.counted) for backend, found in zip(service.backends, targets, strict=True)]
    status = Status(
        observed_generation=service.generation,
        facts=(
            facts.accepted(inputs.conflicts.get(key, ())),
            facts.resolved_refs(service, counts),
            facts.programmed(proxies),
            facts.ready(counts, proxies.counted),
        ),
        backends=backend_rows(service, counts),
        endpoints=column(counts, proxies.counted),
        proxy=ProxyStatus(
            replicas=proxies.replicas,
            programmed=len(proxies.programmed),
            version=snapshot.version,
            selector=_selector(service.name) if service.proxy.mode == "Gateway" else "",
            ports=_ports(allotted.listen),
        ),
        sidecar=SidecarStatus(address=allotted.address) if allotted.address else None,
        address=(front.ingress or front.cluster_ip) if front else "",
    )
    return Translated(
        snapshot=snapshot,
        status=status,
        admitted=_admitted(service, allotted, front, proxies),
        bridged=_bridged(inputs, service, front, proxies),
    )


def _rejected(inputs: Inputs, key: Key, given: Given, what: tuple[Fact, ...]) -> Translated:
    """Nothing of it is served anew; what it was given stays in its status, or it would be given out again.

    So does what a Gateway's autoscaler reads: the proxies of the last good configuration are still there.
    """
    front = inputs.services.get(key) if key in inputs.replicas else None
    status = Status(
        observed_generation=given.generation,
        facts=what,
        proxy=ProxyStatus(
            replicas=inputs.replicas.get(key, len(heard(inputs, key))),
            selector=_selector(key[1]) if key in inputs.replicas else "",
            ports=_ports(given.listen),
        ),
        sidecar=SidecarStatus(address=given.address) if given.address else None,
        address=(front.ingress or front.cluster_ip) if front else "",
    )
    return Translated(snapshot=None, status=status)


def _front(inputs: Inputs, service: BalancedService) -> ServiceRecord | None:
    """The object's own Service: of that name, and not somebody else's."""
    if service.proxy.mode == "External" or f"Service {service.name}" in inputs.conflicts.get(service.key, ()):
        return None
    return inputs.services.get(service.key)


def _selector(name: str) -> str:
    return f"{GROUP}/balancedservice={name}"


def _ports(listen: Mapping[str, int]) -> tuple[PortStatus, ...]:
    return tuple(PortStatus(name=name, listen=listen[name]) for name in sorted(listen, key=listen.__getitem__))


def _allot(inputs: Inputs, service: BalancedService, given: Given) -> _Allotted:
    gateway, sidecar = service.proxy.mode == "Gateway", service.proxy.mode == "Sidecar"
    listen = listen_numbers(given.listen, [port.name for port in service.ports]) if gateway else given.listen
    claims = inputs.claims.get(service.namespace, {})
    address = loopback_address(service.namespace, service.name, given.address, claims) if sidecar else given.address
    return _Allotted(listen, address)


def _snapshot(service: BalancedService, allotted: _Allotted, targets: Sequence[tuple[Target, ...]]) -> Snapshot:
    mode = service.proxy.mode
    return Snapshot(
        namespace=service.namespace,
        name=service.name,
        uid=service.uid,
        generation=service.generation,
        mode=mode,
        address=allotted.address if mode == "Sidecar" else "",
        ports=tuple(
            SnapshotPort(
                name=port.name,
                port=port.port,
                listen=allotted.listen[port.name] if mode == "Gateway" else port.port,
                protocol=port.protocol,
                backends=tuple(
                    _backend(backend, found[index]) for backend, found in zip(service.backends, targets, strict=True)
                ),
            )
            for index, port in enumerate(service.ports)
        ),
        algorithm=service.algorithm,
        affinity=service.affinity,
        retries=service.retries,
        timeouts=service.timeouts,
        limits=service.limits,
        request_header_bytes=service.request_header_bytes,
        max_request_body_bytes=service.max_request_body_bytes,
        health=service.health,
        locality=service.locality,
        proxy=SnapshotProxy(
            accept_grace=service.proxy.accept_grace,
            drain=service.proxy.drain,
            trusted_proxies=service.proxy.trusted_proxies,
            access_log=service.proxy.access_log,
            debug_key=service.proxy.debug_key,
        ),
    )


def _backend(backend: Backend, target: Target) -> SnapshotBackend:
    return SnapshotBackend(
        name=backend.name,
        weight=backend.weight,
        weight_per=backend.weight_per,
        priority=backend.priority,
        endpoints=target.endpoints,
        hostname=target.hostname,
        port=target.port,
    )


def _admitted(
    service: BalancedService, allotted: _Allotted, front: ServiceRecord | None, proxies: Fleet
) -> tuple[str, ...]:
    """A port enters the Service once all ready proxies serve it, or its first connections would be refused.

    Without a ready proxy there is none to wait for; and a Service must have a port.
    """
    names = tuple(port.name for port in service.ports)
    if service.proxy.mode != "Gateway" or front is None or not proxies.expected or proxies.complete:
        return names
    served = {port.target_port for port in front.ports}
    return tuple(name for name in names if allotted.listen[name] in served) or names


def _bridged(inputs: Inputs, service: BalancedService, front: ServiceRecord | None, proxies: Fleet) -> bool:
    """An object that was a Sidecar has slices of the pods; without them its Service would have nobody for a while."""
    if service.proxy.mode != "Gateway" or front is None or proxies.complete:
        return False
    return any(piece.ours for piece in inputs.slices.get(front.key, ()))
