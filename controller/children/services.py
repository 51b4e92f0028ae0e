"""The Service that clients call, and the headless ones by which `selector` backends are found."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from controller.children.meta import owned, selector
from controller.model.names import headless_name
from controller.model.service import Backend, BalancedService
from controller.model.snapshot import Snapshot


def front_service(service: BalancedService, snapshot: Snapshot, admitted: Collection[str]) -> dict[str, Any]:
    """Named like the object. In a Gateway it selects the proxies, and maps each port to the number they listen on.

    For sidecars it has no selector: the operator writes its EndpointSlices, for clients without a sidecar.
    """
    proxy = service.proxy
    gateway = proxy.mode == "Gateway"
    spec: dict[str, Any] = {
        "type": proxy.service_type,
        "ports": [
            {"name": port.name, "port": port.port, "protocol": "TCP"} | ({"targetPort": port.listen} if gateway else {})
            for port in snapshot.ports
            if port.name in admitted
        ],
    }
    if gateway:
        spec["selector"] = selector(service)
    if proxy.service_type != "ClusterIP":
        # Local keeps the client's address and a hop; a NodePort without a proxy on each node would lose requests.
        local = "Local" if proxy.service_type == "LoadBalancer" else "Cluster"
        spec["externalTrafficPolicy"] = proxy.external_traffic_policy or local
    if service.locality.prefer == "Zone":
        spec["trafficDistribution"] = "PreferClose"  # by this name since 1.31
    return owned("v1", "Service", service.name, service, annotations=proxy.service_annotations) | {"spec": spec}


def headless_services(service: BalancedService) -> list[dict[str, Any]]:
    """One for each `selector` backend, with a port for each of the object's, of the same name."""
    return [_headless(service, backend) for backend in service.backends if backend.selector is not None]


def _headless(service: BalancedService, backend: Backend) -> dict[str, Any]:
    spec = {
        "clusterIP": "None",
        "selector": dict(backend.selector or {}),
        "ports": [
            {
                "name": port.name,
                "port": port.port,
                "protocol": "TCP",
                "targetPort": backend.port or port.target_port or port.port,
            }
            for port in service.ports
        ],
    }
    name = headless_name(service.name, backend.name)
    return owned("v1", "Service", name, service, component="backend") | {"spec": spec}
