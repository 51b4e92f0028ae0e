"""`Inputs` from Kubernetes objects in a list, as a file or a dump of a cluster has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from controller.model.endpoints import (
    Grant,
    ServiceRecord,
    Slice,
    grant_record,
    service_record,
    slice_record,
)
from controller.model.parsing import parse
from controller.model.service import BalancedService, Invalid
from controller.translate.inputs import Given, Inputs, Key, given


def gather(items: Iterable[Mapping[str, Any]], *, standalone: bool = False) -> Inputs:
    """A whole state from objects as the API server returns them, or from a file that may leave out the namespace.

    A BalancedService may have any mistake, which makes it `Invalid`. Kinds that nothing is made of are skipped.
    Reports, conflicts and watched namespaces are no Kubernetes objects: add them by `msgspec.structs.replace`.
    """
    objects: dict[Key, BalancedService | Invalid] = {}
    out: dict[Key, Given] = {}
    services: dict[Key, ServiceRecord] = {}
    slices: defaultdict[Key, list[Slice]] = defaultdict(list)
    grants: defaultdict[str, list[Grant]] = defaultdict(list)
    claims: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        match item.get("kind"):
            case "BalancedService":
                parsed, kept = parse(item), given(item)
                key = (parsed.namespace, parsed.name)
                objects[key], out[key] = parsed, kept
                if kept.address:
                    claims[parsed.namespace][kept.address].append(parsed.name)
            case "Service":
                service = service_record(item)
                services[service.key] = service
            case "EndpointSlice":
                piece = slice_record(item)
                slices[piece.key].append(piece)
            case "ReferenceGrant":
                grant = grant_record(item)
                grants[grant.namespace].append(grant)
    return Inputs(
        objects=objects,
        given=out,
        services=services,
        slices=dict(slices),
        grants=dict(grants),
        claims={namespace: dict(claimed) for namespace, claimed in claims.items()},
        standalone=standalone,
    )
