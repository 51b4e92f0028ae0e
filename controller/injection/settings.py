"""What all sidecars have in common: the operator's own settings for them."""

from __future__ import annotations

import msgspec

from controller.children import ChildSettings


class InjectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`proxy` is shared with the proxies of Gateways: image, operator's address, audience, user. Times in seconds."""

    proxy: ChildSettings
    version: str  # of the injector; stands in each pod
    cluster_domain: str = "cluster.local"
    start_timeout: float = 10.0  # without a snapshot for so long, the sidecar passes requests to the Service itself
    # A sidecar serves one pod: it has less to hold than a Gateway's proxy.
    resources: dict[str, object] = msgspec.field(
        default_factory=lambda: {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "96Mi"}}
    )
