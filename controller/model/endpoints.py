"""Endpoints, and the records of Services, EndpointSlices and ReferenceGrants that they come from.

A record holds the few fields that are read, made from raw JSON by one function each: ten times less memory than typed
models, and two objects that differ only in what nobody reads are equal, so no change. The functions take any object
that the API server would send (fields null or absent) and never raise on one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from controller.model.service import GROUP, Struct

State = Literal["ACTIVE", "DRAINING", "PARKED"]
DEFAULT_NAMESPACE = "default"  # of an object from a file that names none
SERVICE_LABEL = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"

Json = Mapping[str, Any]


class Endpoint(Struct, frozen=True, kw_only=True):
    """One address that may be picked for one port of one backend."""

    id: str  # the identity: pod uid, else `address:port`. State belongs to it
    address: str  # an IP literal, IPv6 without brackets
    port: int
    state: State = "ACTIVE"
    pod: str = ""  # `namespace/name` of the pod; "" when there is none
    node: str = ""
    zone: str = ""
    zone_hints: tuple[str, ...] = ()
    node_hints: tuple[str, ...] = ()

    def hash_identity(self, by: Literal["Pod", "Address"]) -> str:
        """What the hash policies know it by: survives a new IP with `Pod`."""
        return f"{self.pod}:{self.port}" if by == "Pod" and self.pod else f"{self.address}:{self.port}"


class ServicePort(msgspec.Struct, frozen=True, kw_only=True):
    """One TCP port of a Service; `name` is "" for a lone unnamed one."""

    name: str = ""
    port: int
    target_port: int | str  # the Service's own: a number, or the name of a container port


class ServiceRecord(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    type: str = "ClusterIP"
    external_name: str = ""
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = ""  # "" for headless ones
    ingress: str = ""  # a load balancer's address or hostname, once it has one
    families: tuple[str, ...] = ()  # `IPv4`, `IPv6`, the preferred one first

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)


class SlicePort(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    number: int | None = None  # None: all ports, which names none to send to


class SliceEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a slice. A condition is None where the API says nothing."""

    address: str  # the first one: the others are the same pod's, and kube-proxy reads the first only
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None
    uid: str = ""  # of the pod
    pod: str = ""  # `namespace/name` of the pod
    node: str = ""
    zone: str = ""
    zone_hints: tuple[str, ...] = ()
    node_hints: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """ready nil is true, serving nil is ready, terminating nil is false (discovery.k8s.io/v1)."""
        if self.ready is None or self.ready:
            return "ACTIVE"
        return "DRAINING" if self.serving and self.terminating else "PARKED"


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    service: str
    address_type: str  # `IPv4`, `IPv6` or `FQDN`
    ports: tuple[SlicePort, ...] = ()
    endpoints: tuple[SliceEndpoint, ...] = ()
    ours: bool = False  # written by the operator, of what a Service without proxies stands for

    @property
    def key(self) -> tuple[str, str]:
        """Of the Service that it belongs to."""
        return (self.namespace, self.service)


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A ReferenceGrant: who may refer into its namespace, and to which Services there ("" = all)."""

    namespace: str
    name: str
    sources: tuple[tuple[str, str, str], ...] = ()  # (group, kind, namespace) of who refers
    services: tuple[str, ...] = ()

    def permits(self, source: tuple[str, str, str], service: str) -> bool:
        return source in self.sources and ("" in self.services or service in self.services)


def service_record(item: Json) -> ServiceRecord:
    meta, spec = _map(item, "metadata"), _map(item, "spec")
    cluster_ip = spec.get("clusterIP") or ""
    balancers = _list(_map(_map(item, "status"), "loadBalancer"), "ingress")
    return ServiceRecord(
        namespace=meta.get("namespace") or DEFAULT_NAMESPACE,
        name=meta["name"],
        type=spec.get("type") or "ClusterIP",
        external_name=spec.get("externalName") or "",
        ports=tuple(
            ServicePort(
                name=port.get("name") or "", port=port["port"], target_port=port.get("targetPort") or port["port"]
            )
            for port in _list(spec, "ports")
            if (port.get("protocol") or "TCP") == "TCP"
        ),
        cluster_ip="" if cluster_ip == "None" else cluster_ip,
        ingress=next((found for each in balancers if (found := each.get("ip") or each.get("hostname"))), ""),
        families=tuple(_list(spec, "ipFamilies")),
    )


def slice_record(item: Json) -> Slice:
    meta = _map(item, "metadata")
    return Slice(
        namespace=meta.get("namespace") or DEFAULT_NAMESPACE,
        name=meta["name"],
        service=_map(meta, "labels").get(SERVICE_LABEL) or "",
        address_type=item.get("addressType") or "IPv4",
        ports=tuple(
            SlicePort(name=port.get("name") or "", number=port.get("port"))
            for port in _list(item, "ports")
            if (port.get("protocol") or "TCP") == "TCP"
        ),
        endpoints=tuple(_slice_endpoint(entry) for entry in _list(item, "endpoints") if entry.get("addresses")),
        ours=_map(meta, "labels").get(MANAGED_BY) == GROUP,
    )


def grant_record(item: Json) -> Grant:
    meta, spec = _map(item, "metadata"), _map(item, "spec")
    return Grant(
        namespace=meta.get("namespace") or DEFAULT_NAMESPACE,
        name=meta["name"],
        sources=tuple(
            (source.get("group") or "", source.get("kind") or "", source.get("namespace") or "")
            for source in _list(spec, "from")
        ),
        services=tuple(
            target.get("name") or ""
            for target in _list(spec, "to")
            if (target.get("group") or "", target.get("kind")) == ("", "Service")
        ),
    )


def fits_a_slice(address: str) -> bool:
    """Whether the API server lets an EndpointSlice hold it: no loopback, link-local or unspecified address."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast)


def _slice_endpoint(entry: Json) -> SliceEndpoint:
    conditions, target, hints = _map(entry, "conditions"), _map(entry, "targetRef"), _map(entry, "hints")
    of_pod = target.get("kind") == "Pod"
    return SliceEndpoint(
        address=entry["addresses"][0],
        ready=conditions.get("ready"),
        serving=conditions.get("serving"),
        terminating=conditions.get("terminating"),
        uid=(target.get("uid") or "") if of_pod else "",
        pod=f"{target.get('namespace') or ''}/{target.get('name') or ''}" if of_pod else "",
        node=entry.get("nodeName") or "",
        zone=entry.get("zone") or "",
        zone_hints=_names(_list(hints, "forZones")),
        node_hints=_names(_list(hints, "forNodes")),
    )


def _names(hints: Iterable[Json]) -> tuple[str, ...]:
    return tuple(sorted(hint["name"] for hint in hints))


def _map(item: Json, key: str) -> Json:
    return item.get(key) or {}


def _list(item: Json, key: str) -> list[Any]:
    return item.get(key) or []
