"""What a BalancedService owns, as dictionaries for server-side apply. Pure.

`children` gives all that an object wants now, so what exists beside it is to be deleted. Each dictionary holds all
that is ours and nothing else: no null, no field that the API server or an autoscaler fills in. Belongs here: the
content of owned objects. Does not belong here: when and in which order they are written (`kube`), and what the sidecar
injector puts into pods of others.

Which mode owns what: a `Gateway` a Deployment, a ServiceAccount, from two replicas on a PodDisruptionBudget, and the
Service; a `Sidecar` the Service and its EndpointSlices, which a `Gateway` that was one keeps until a proxy is ready; an
`External` none of these. Every `selector` backend has its headless Service in any mode, since its endpoints are read
from there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from controller.children.identity import disruption_budget, service_account
from controller.children.pods import deployment
from controller.children.services import front_service, headless_services
from controller.children.settings import ChildSettings
from controller.children.slices import endpoint_slices
from controller.children.trust import authority
from controller.model.service import BalancedService
from controller.model.snapshot import Snapshot

__all__ = ["ChildSettings", "authority", "children"]


def children(
    service: BalancedService,
    snapshot: Snapshot,
    admitted: Collection[str],
    settings: ChildSettings,
    *,
    bridged: bool = False,
) -> tuple[dict[str, Any], ...]:
    """All children, in the order in which they are best written.

    `snapshot`, `admitted` and `bridged` are `translate`'s, of the same object; without a snapshot nothing is to be
    written.
    """
    wanted = headless_services(service)
    if service.proxy.mode == "Gateway":
        wanted += [service_account(service), deployment(service, settings)]
        wanted += disruption_budget(service)
        wanted += endpoint_slices(service, snapshot) if bridged else []
        wanted += [front_service(service, snapshot, admitted)]
    elif service.proxy.mode == "Sidecar":
        # The slices first: a Service that loses its selector keeps its old slices, which name dead pods.
        wanted += endpoint_slices(service, snapshot)
        wanted += [front_service(service, snapshot, admitted)]
    return tuple(wanted)
