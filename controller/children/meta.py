"""Metadata of owned objects: labels that find them, and the reference by which they are collected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from controller.model.service import GROUP, KIND, VERSION, BalancedService

OWNER_LABEL = f"{GROUP}/balancedservice"  # the value is the object's name; empty on what several objects share


def selector(service: BalancedService) -> dict[str, str]:
    """Matches the proxies' pods. A Deployment's is immutable, so it holds what can never change."""
    return {OWNER_LABEL: service.name}


def labels(service: BalancedService, component: Literal["proxy", "backend"]) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "steelyard",
        "app.kubernetes.io/instance": service.name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "steelyard",
        **selector(service),
    }


def owner_reference(service: BalancedService, *, controller: bool) -> dict[str, Any]:
    reference: dict[str, Any] = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": service.name,
        "uid": service.uid,
    }
    return reference | {"controller": True, "blockOwnerDeletion": True} if controller else reference


def owned(
    api_version: str,
    kind: str,
    name: str,
    service: BalancedService,
    *,
    component: Literal["proxy", "backend"] = "proxy",
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """An object with all but its content; always in the owner's namespace, or it would be collected at once."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": service.namespace,
        "labels": labels(service, component),
        "ownerReferences": [owner_reference(service, controller=True)],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
