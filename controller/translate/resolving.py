"""From a backend, as its author named it, to the endpoints behind each port of the object."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Literal, NamedTuple

from controller.model.endpoints import Endpoint, ServicePort, ServiceRecord
from controller.model.names import headless_name
from controller.model.service import GROUP, KIND, Backend, BalancedService, Port, ServiceRef
from controller.translate.inputs import Inputs, Key
from controller.translate.joining import join


class Problem(NamedTuple):
    """Why a reference leads nowhere; the message is to be read beside the backend's name."""

    reason: Literal["BackendNotFound", "PortNotFound", "RefNotPermitted"]
    message: str


class Target(NamedTuple):
    """One backend, seen through one port of the object."""

    endpoints: tuple[Endpoint, ...] = ()
    hostname: str | None = None  # the proxy resolves it, and sends to `port`
    port: int | None = None
    problem: Problem | None = None


def resolve(inputs: Inputs, service: BalancedService, backend: Backend) -> tuple[Target, ...]:
    """A target for each of `service.ports`. A backend that can't be resolved costs its own share only."""
    if backend.service is not None:
        record = find(inputs, service, backend.service)
        if isinstance(record, Problem):
            return tuple(Target(problem=record) for _ in service.ports)
        return tuple(_through_service(inputs, service, backend, record, port) for port in service.ports)
    if backend.selector is not None:
        return tuple(_through_selector(inputs, service, backend, port) for port in service.ports)
    return tuple(_fixed(backend, port) for port in service.ports)


def find(inputs: Inputs, service: BalancedService, ref: ServiceRef) -> ServiceRecord | Problem:
    """The Service that a backend names. Without a grant nothing is told of another namespace, not even what exists."""
    namespace = ref.namespace or service.namespace
    if inputs.watched is not None and namespace not in inputs.watched:
        return Problem(
            "BackendNotFound",
            f'this operator does not watch namespace "{namespace}" (watchNamespaces), '
            f"so it can't see Service {namespace}/{ref.name}",
        )
    if namespace != service.namespace:
        source = (GROUP, KIND, service.namespace)
        if not any(grant.permits(source, ref.name) for grant in inputs.grants.get(namespace, ())):
            return Problem(
                "RefNotPermitted",
                f"Service {namespace}/{ref.name} needs a ReferenceGrant in namespace "
                f'"{namespace}", from {KIND} in "{service.namespace}" to Service',
            )
    record = inputs.services.get((namespace, ref.name))
    if record is None:
        return Problem("BackendNotFound", f"there is no Service {namespace}/{ref.name}")
    return record


def loop(inputs: Inputs, service: BalancedService) -> str | None:
    """What to tell the author of a backend that leads back to the object's own Service, or None."""
    if service.proxy.mode == "External":
        return None  # there is no such Service
    for backend in service.backends:
        if _is_own(inputs, service, backend):
            return (
                f'backend "{backend.name}" leads back to Service {service.namespace}/{service.name}, which is this '
                "object's own: requests would go round for ever; name what stands behind it"
            )
    return None


def _is_own(inputs: Inputs, service: BalancedService, backend: Backend) -> bool:
    if backend.service is not None:
        key: Key = (backend.service.namespace or service.namespace, backend.service.name)
        record = inputs.services.get(key)
        external = record.external_name if record is not None and record.type == "ExternalName" else ""
        return key == service.key or _names_own(external, service)
    if backend.addresses is not None:
        own = inputs.services.get(service.key)
        return own is not None and own.cluster_ip in _canonical(backend.addresses)
    if backend.selector is not None:
        own_labels = {**service.proxy.pod_labels, f"{GROUP}/balancedservice": service.name}
        return service.proxy.mode == "Gateway" and backend.selector.items() <= own_labels.items()
    return _names_own(backend.hostname or "", service)


def _names_own(hostname: str, service: BalancedService) -> bool:
    """Whether cluster DNS, asked from a pod of this namespace, answers with the object's own Service."""
    host = hostname.rstrip(".")
    qualified = f"{service.name}.{service.namespace}"
    return host in (service.name, qualified, f"{qualified}.svc") or host.startswith(f"{qualified}.svc.")


def _through_service(
    inputs: Inputs, service: BalancedService, backend: Backend, record: ServiceRecord, port: Port
) -> Target:
    wanted = backend.port or port.target_port
    found = _service_port(record, wanted, port.port)
    if record.type == "ExternalName":
        # A CNAME maps no ports: the number that a client of the Service would use is the one to connect to.
        number = found.port if found else wanted or port.port
        if isinstance(number, int):
            return Target(hostname=record.external_name, port=number)
    elif found is not None:
        slices = inputs.slices.get(record.key, ())
        return Target(join(slices, found.name, record.families, hints=service.locality.prefer == "Service"))
    listed = ", ".join(_described(each) for each in record.ports) or "none"
    return Target(
        problem=Problem(
            "PortNotFound",
            f"Service {record.namespace}/{record.name} has no TCP port {wanted or port.port}; it has: {listed}",
        )
    )


def _service_port(record: ServiceRecord, wanted: int | str | None, fallback: int) -> ServicePort | None:
    """The port with that number or name, else the one whose own targetPort is it; nothing wanted: the only one."""
    if wanted is None:
        if len(record.ports) == 1:
            return record.ports[0]
        wanted = fallback
    named = (each for each in record.ports if wanted in (each.port, each.name))
    aimed = (each for each in record.ports if wanted == each.target_port)
    return next(named, None) or next(aimed, None)


def _described(port: ServicePort) -> str:
    name = f' "{port.name}"' if port.name else ""
    return f"{port.port}{name} (targetPort {port.target_port})"


def _through_selector(inputs: Inputs, service: BalancedService, backend: Backend, port: Port) -> Target:
    """By the operator's own headless Service, whose ports are named as the object's are."""
    key = (service.namespace, headless_name(service.name, backend.name))
    record = inputs.services.get(key)
    families = record.families if record else ()
    return Target(join(inputs.slices.get(key, ()), port.name, families, hints=service.locality.prefer == "Service"))


def _fixed(backend: Backend, port: Port) -> Target:
    number = backend.port or port.target_port or port.port
    assert isinstance(number, int)  # parse refuses a port's name for what has no named ports
    if backend.hostname is not None:
        return Target(hostname=backend.hostname, port=number)
    addresses = sorted(_canonical(backend.addresses or ()))
    return Target(tuple(Endpoint(id=f"{each}:{number}", address=each, port=number) for each in addresses))


def _canonical(addresses: Iterable[str]) -> set[str]:
    """One spelling per address (RFC 5952), so that one written twice is one endpoint."""
    return {str(ipaddress.ip_address(address)) for address in addresses}
