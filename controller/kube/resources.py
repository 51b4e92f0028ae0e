"""The kinds of the API that the operator reads or writes, and their addresses."""

from __future__ import annotations

import msgspec

from controller.children.meta import OWNER_LABEL
from controller.injection import INJECT_LABEL
from controller.model.endpoints import SERVICE_LABEL
from controller.model.service import GROUP, PLURAL, VERSION

CHILDREN_MANAGER = "steelyard-children"
STATUS_MANAGER = "steelyard-status"


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One kind, by its address. `selector` narrows what is listed and watched to what carries the label."""

    group: str = ""
    version: str = "v1"
    plural: str
    selector: str = ""
    optional: bool = False  # its CRD may be absent: then there are none
    metadata_only: bool = False  # read without spec and status

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def accept(self, *, listed: bool) -> str:
        """The media type of a list, or of a watch's events."""
        if not self.metadata_only:
            return "application/json"
        kind = "PartialObjectMetadataList" if listed else "PartialObjectMetadata"
        return f"application/json;as={kind};g=meta.k8s.io;v=v1"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """Of all (of a namespace), or of one object or its subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


BALANCED_SERVICES = Resource(group=GROUP, version=VERSION, plural=PLURAL)
SERVICES = Resource(plural="services")
ENDPOINT_SLICES = Resource(group="discovery.k8s.io", plural="endpointslices", selector=SERVICE_LABEL)
REFERENCE_GRANTS = Resource(
    group="gateway.networking.k8s.io", version="v1beta1", plural="referencegrants", optional=True
)
EVENTS = Resource(group="events.k8s.io", plural="events")
LEASES = Resource(group="coordination.k8s.io", plural="leases")
DEPLOYMENTS = Resource(group="apps", plural="deployments")
ENDPOINTS = Resource(plural="endpoints")
SECRETS = Resource(plural="secrets")
WEBHOOKS = Resource(group="admissionregistration.k8s.io", plural="mutatingwebhookconfigurations")
ASKING_PODS = Resource(plural="pods", selector=f"{INJECT_LABEL}=enabled", metadata_only=True)
TOKEN_REVIEWS = Resource(group="authentication.k8s.io", plural="tokenreviews")

# What a BalancedService may own, by (apiVersion, kind).
CHILDREN: dict[tuple[str, str], Resource] = {
    ("v1", "Service"): Resource(plural="services", selector=OWNER_LABEL),
    ("v1", "ServiceAccount"): Resource(plural="serviceaccounts", selector=OWNER_LABEL),
    ("v1", "ConfigMap"): Resource(plural="configmaps", selector=OWNER_LABEL),
    ("apps/v1", "Deployment"): Resource(group="apps", plural="deployments", selector=OWNER_LABEL),
    ("discovery.k8s.io/v1", "EndpointSlice"): Resource(
        group="discovery.k8s.io", plural="endpointslices", selector=OWNER_LABEL
    ),
    ("policy/v1", "PodDisruptionBudget"): Resource(group="policy", plural="poddisruptionbudgets", selector=OWNER_LABEL),
}
