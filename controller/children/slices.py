"""The EndpointSlices of a Service in `Sidecar` mode: for its clients that have no sidecar."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from typing import Any

from controller.children.meta import owned
from controller.model.endpoints import MANAGED_BY, SERVICE_LABEL, Endpoint, fits_a_slice
from controller.model.names import fitted, short_hash
from controller.model.service import GROUP, BalancedService
from controller.model.snapshot import Snapshot, SnapshotPort

MOST = 1000  # entries that the API server accepts in one slice

_Numbers = tuple[tuple[str, int], ...]  # (name of the port, its number), in the object's order of ports


def endpoint_slices(service: BalancedService, snapshot: Snapshot) -> list[dict[str, Any]]:
    """One per address family and set of port numbers (over 1,000 entries: several), from the ACTIVE endpoints.

    kube-proxy knows neither weights nor priorities. So what has weight 0 is left out, and of the priorities only the
    first that has anything; so is what no slice can hold: hostnames, loopback and link-local addresses.
    """
    numbers: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    entries: dict[str, Endpoint] = {}
    for port in snapshot.ports:
        for endpoint in _first_level(port):
            if port.name not in dict(numbers[endpoint.id]):
                numbers[endpoint.id].append((port.name, endpoint.port))
            entries.setdefault(endpoint.id, endpoint)
    groups: defaultdict[tuple[str, _Numbers], list[Endpoint]] = defaultdict(list)
    for id_ in sorted(entries):
        family = f"IPv{ipaddress.ip_address(entries[id_].address).version}"
        groups[family, tuple(numbers[id_])].append(entries[id_])
    return [
        _slice(service, family, ports, group[start : start + MOST], start // MOST)
        for (family, ports), group in sorted(groups.items(), key=lambda item: item[0])
        for start in range(0, len(group), MOST)
    ]


def _first_level(port: SnapshotPort) -> list[Endpoint]:
    levels: defaultdict[int, list[Endpoint]] = defaultdict(list)
    for backend in port.backends:
        if backend.weight > 0:
            levels[backend.priority] += [
                each for each in backend.endpoints if each.state == "ACTIVE" and fits_a_slice(each.address)
            ]
    return next((levels[level] for level in sorted(levels) if levels[level]), [])


def _slice(service: BalancedService, family: str, ports: _Numbers, group: list[Endpoint], part: int) -> dict[str, Any]:
    digest = short_hash(family, *(f"{name}={number}" for name, number in ports), str(part))
    piece = owned("discovery.k8s.io/v1", "EndpointSlice", fitted(f"{service.name}-{digest}"), service)
    piece["metadata"]["labels"] |= {SERVICE_LABEL: service.name, MANAGED_BY: GROUP}
    return piece | {
        "addressType": family,
        "ports": [{"name": name, "port": number, "protocol": "TCP"} for name, number in ports],
        "endpoints": [_entry(endpoint, by_zone=service.locality.prefer == "Zone") for endpoint in group],
    }


def _entry(endpoint: Endpoint, *, by_zone: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "addresses": [endpoint.address],
        "conditions": {"ready": True, "serving": True, "terminating": False},
    }
    if endpoint.node:
        entry["nodeName"] = endpoint.node
    if endpoint.zone:
        entry["zone"] = endpoint.zone
    # Whoever writes a slice writes its hints: a Service's trafficDistribution moves the cluster's own controller only.
    zones = (endpoint.zone,) if by_zone and endpoint.zone else endpoint.zone_hints
    if zones:
        entry["hints"] = {"forZones": [{"name": zone} for zone in zones]}
    if endpoint.pod:
        namespace, _, name = endpoint.pod.partition("/")
        entry["targetRef"] = {"kind": "Pod", "namespace": namespace, "name": name, "uid": endpoint.id}
    return entry
