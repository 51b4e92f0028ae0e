"""`Inputs` from Kubernetes objects in a list, as a file or a dump of a cluster has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from controller.model.endpoints import (
    SERVICE_LABEL,
    Grant,
    ServiceRecord,
    Slice,
    grant_record,
    service_record,
    slice_record,
)
from controller.model.parsing import parse
from controller.model.service import KIND, BalancedService, Invalid
from controller.translate.inputs import Given, Inputs, Key, given


def gather(items: Iterable[Mapping[str, Any]], *, standalone: bool = False) -> Inputs:
    """A whole state. Each item has `metadata.name` and `metadata.namespace`; other kinds are skipped.

    Reports, conflicts and watched namespaces are no Kubernetes objects: add them by `msgspec.structs.replace`.
    """
    objects: dict[Key, BalancedService | Invalid] = {}
    out: dict[Key, Given] = {}
    services: dict[Key, ServiceRecord] = {}
    slices: defaultdict[Key, list[Slice]] = defaultdict(list)
    grants: defaultdict[str, list[Grant]] = defaultdict(list)
    claims: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        kind = item.get("kind")
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        if kind == KIND:
            objects[namespace, name] = parse(item)
            out[namespace, name] = kept = given(item)
            if kept.address:
                claims[namespace][kept.address].append(name)
        elif kind == "Service":
            services[namespace, name] = service_record(item)
        elif kind == "EndpointSlice" and (item["metadata"].get("labels") or {}).get(SERVICE_LABEL):
            piece = slice_record(item)
            slices[piece.key].append(piece)
        elif kind == "ReferenceGrant":
            grants[namespace].append(grant_record(item))
    return Inputs(
        objects=objects,
        given=out,
        services=services,
        slices=slices,
        grants=grants,
        claims=claims,
        standalone=standalone,
    )
