"""`parse`: from an API object, or a document of a file, to a `BalancedService` with every default filled in.

Strict, as kubectl is: an unknown field is a fault. Every fault is collected, with its path and the mend. What this
module accepts is exactly what `crds/balancedservices.yaml` accepts (a test holds the two together), and the messages
of the rules are the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from controller.model import rules
from controller.model.fields import refuse, shown
from controller.model.schema import METADATA, NAME, NAMESPACE, SPEC
from controller.model.service import GROUP, KIND, VERSION, BalancedService, Fault, Invalid

API_VERSION = f"{GROUP}/{VERSION}"
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")


def parse(object: object) -> BalancedService | Invalid:  # noqa: A002 - Kubernetes' own word for it
    """The service that `object` describes, or all that is wrong with it. Never raises.

    `object` is decoded JSON or YAML: a BalancedService as the API server returns it, or as its author wrote it.
    Without `metadata.namespace` it belongs to `default`; `status` is ignored.
    """
    if not isinstance(object, Mapping):
        message = f"must be a mapping with apiVersion, kind, metadata and spec, not {shown(object)}"
        return Invalid("", "", (Fault("", message),))
    faults: list[Fault] = []
    for field in object:
        if field not in _TOP:
            refuse(faults, str(field), f"is not a field; here are {', '.join(_TOP)}")
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if object.get(field, expected) != expected:  # absent in the items of a list
            refuse(faults, field, f"must be {expected}, not {shown(object[field])}")
    metadata = object.get("metadata")
    if not isinstance(metadata, Mapping):
        if metadata is not None:
            refuse(faults, "metadata", f"must be a mapping, not {shown(metadata)}")
        metadata = {}
    for field in metadata:
        if field not in METADATA:
            refuse(faults, f"metadata.{field}", "is not a field of metadata")
    namespace = metadata.get("namespace") or "default"
    NAMESPACE.read(namespace, "metadata.namespace", faults)
    name = metadata.get("name") or ""
    NAME.read(name, "metadata.name", faults)
    spec = SPEC.read_given(object.get("spec"), "spec", faults)
    if isinstance(spec, dict) and rules.names_itself(name, spec):
        refuse(faults, "spec.backends", rules.LOOP)
    if faults or not isinstance(spec, dict):
        return Invalid(str(namespace), str(name), tuple(faults))
    generation = metadata.get("generation")
    service = BalancedService(
        namespace=namespace,
        name=name,
        uid=str(metadata.get("uid") or ""),
        generation=generation if isinstance(generation, int) else 0,
        deleting=metadata.get("deletionTimestamp") is not None,
        **spec,
    )
    return _with_check_host(service)


def _with_check_host(service: BalancedService) -> BalancedService:
    active = service.health.active
    if active is None or active.host:
        return service
    active = msgspec.structs.replace(active, host=service.name)
    return msgspec.structs.replace(service, health=msgspec.structs.replace(service.health, active=active))


def encode(service: BalancedService) -> dict[str, Any]:
    """The object that `service` came from, with every default that is in force: `parse` gives `service` again."""
    spec = SPEC.write(service)
    for option, algorithm in rules.OPTION_OF.items():
        if service.algorithm.type != algorithm:
            del spec["algorithm"][option]
    metadata: dict[str, Any] = {"name": service.name, "namespace": service.namespace}
    if service.uid:
        metadata |= {"uid": service.uid, "generation": service.generation}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
