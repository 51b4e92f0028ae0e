"""What the children of all objects have in common: the operator's own settings for them."""

from __future__ import annotations

import msgspec


class ChildSettings(msgspec.Struct, frozen=True, kw_only=True):
    image: str  # of the proxy
    control: str  # the operator's discovery address, as `https://steelyard.steelyard-system.svc:19443`
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()  # names in the object's namespace, beside the object's own
    priority_class_name: str = ""  # where the object names none
    # Memory request = limit: what is promised is there, and the node never has to choose. No CPU limit: it would
    # throttle in bursts. 128 MiB hold the proxy and some thousand connections.
    resources: dict[str, object] = msgspec.field(
        default_factory=lambda: {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}}
    )
    health_port: int = 19902
    user: int = 65532  # the image's: numeric, since the kubelet can't check a name against runAsNonRoot
    token_seconds: int = 3600  # the kubelet renews it at 80 %
    audience: str = "steelyard.dev/discovery"
