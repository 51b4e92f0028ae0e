"""The small companions of the Deployment: whose name its pods go by, and how many may be evicted at once."""

from __future__ import annotations

from typing import Any

from controller.children.meta import owned, selector
from controller.model.names import proxy_name
from controller.model.service import BalancedService


def service_account(service: BalancedService) -> dict[str, Any]:
    """Without any permission and any mounted token: by its name alone the operator knows a Gateway's proxy."""
    return owned("v1", "ServiceAccount", proxy_name(service.name), service) | {"automountServiceAccountToken": False}


def disruption_budget(service: BalancedService) -> list[dict[str, Any]]:
    """From two replicas on: with one, it would only stop every drain of a node."""
    if service.proxy.replicas < 2:
        return []
    spec = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": selector(service)},
        # A proxy that isn't ready serves nobody, so it may always go.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return [owned("policy/v1", "PodDisruptionBudget", proxy_name(service.name), service) | {"spec": spec}]
