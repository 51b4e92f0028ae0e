"""Kubernetes objects as the API server returns them, as small as the operator can read them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def balanced(name: str = "shop", *, uid: str = "", generation: int = 1, version: str = "1", **spec: Any) -> Object:
    """A BalancedService in the namespace `store` with one backend, the Service `<name>-v1`."""
    defaults = {"ports": [{"port": 80}], "backends": [{"name": "stable", "service": {"name": f"{name}-v1"}}]}
    return {
        "apiVersion": "steelyard.dev/v1alpha1",
        "kind": "BalancedService",
        "metadata": {
            "namespace": "store",
            "name": name,
            "uid": uid or f"uid-of-{name}",
            "generation": generation,
            "resourceVersion": version,
        },
        "spec": defaults | spec,
    }


def service(name: str, version: str = "1", **spec: Any) -> Object:
    defaults = {"type": "ClusterIP", "clusterIP": "10.96.0.7", "ports": [{"port": 80, "targetPort": 8080}]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "store", "name": name, "uid": f"uid-of-{name}", "resourceVersion": version},
        "spec": defaults | spec,
    }


def endpoint(address: str, *, ready: bool = True, zone: str = "a", node: str = "n1") -> Object:
    return {
        "addresses": [address],
        "conditions": {"ready": ready, "serving": ready, "terminating": False},
        "nodeName": node,
        "zone": zone,
        "targetRef": {"kind": "Pod", "namespace": "store", "name": f"pod-{address}", "uid": f"pod-{address}"},
    }


def slice_of(service: str, *addresses: str, name: str = "", version: str = "1", **more: Any) -> Object:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "store",
            "name": name or f"{service}-abcde",
            "labels": {"kubernetes.io/service-name": service},
            "resourceVersion": version,
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [endpoint(address) for address in addresses],
    } | more
