"""`steelyard inject`: workloads from a file, with the sidecar in their pods, for `kubectl apply -f -`.

The services come from a file (as `kubectl get bsvc -o yaml` writes it) or, one list a namespace, from the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from controller.discovery import manifests
from controller.discovery.words import Unreadable
from controller.injection import KINDS, InjectionSettings, Refused, Target, inject_workload, namespace_of, target
from controller.model.parsing import parse
from controller.model.service import KIND, BalancedService
from controller.translate import given

Object = dict[str, Any]
Services = Callable[[str], list[Target]]  # of a namespace


class Unusable(Exception):  # noqa: N818 - what the input is
    """The message is for the author of the input."""


class Unreachable(Exception):  # noqa: N818 - what the API server is
    """The message says why."""


async def ask(kubeconfig: str | None, namespaces: list[str]) -> dict[str, list[Target]]:
    """The services of these namespaces, from the API server. Raises Unreachable."""
    # A file needs no client of the API.
    try:
        from aiohttp import ClientError

        from controller.kube.api import Api, ApiError, ConfigException, load
        from controller.kube.reflector import pages
        from controller.kube.resources import BALANCED_SERVICES
    except ModuleNotFoundError as error:
        raise Unreachable(
            f"asking the API server needs the package {error.name}: install steelyard[controller] "
            "(--services FILE does without)"
        ) from error

    api = Api(lambda: load(kubeconfig), "steelyard-inject")
    try:
        return {
            namespace: from_list(
                [item async for page in pages(api, BALANCED_SERVICES, namespace) for item in page.get("items") or ()],
                namespace,
            )
            for namespace in namespaces
        }
    except (ApiError, ClientError, ConfigException, TimeoutError, OSError) as error:
        raise Unreachable(f"can't list the BalancedServices: {error} (--services FILE needs no API server)") from error
    finally:
        await api.close()


def documents(data: bytes, source: str) -> list[Object]:
    """The objects of a stream of YAML documents; a List is taken apart. Raises Unusable."""
    try:
        found = manifests.read(data)
    except Unreadable as error:
        raise Unusable(f"{source}:{error.line}: {error}" if error.line else f"{source}: {error}") from error
    objects: list[Object] = []
    for line, each in found:
        for item in _items(each):
            if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
                raise Unusable(f"{source}:{line}: is no Kubernetes object")
            metadata = item.get("metadata") or {}
            if not isinstance(metadata, dict) or not isinstance(metadata.get("namespace") or "", str):
                raise Unusable(f"{source}:{line}: metadata is no mapping, or its namespace no string")
            objects.append(item)
    return objects


def _items(document: Any) -> list[Any]:
    """By `items`, as kubectl knows a List: a kind of someone's own may be called AllowList."""
    if isinstance(document, dict) and str(document.get("kind")).endswith("List"):
        items = document.get("items", [document])
        return items if isinstance(items, list) else [document]
    return [document]


def from_file(path: Path) -> Services:
    """Raises Unusable for what is no BalancedService, or has no address yet."""
    listed = [each for each in documents(path.read_bytes(), str(path)) if each["kind"] == KIND]
    found = [(namespace_of(each, ""), _target(each, str(path))) for each in listed]

    def services(namespace: str) -> list[Target]:
        """An object without a namespace is wherever it is applied."""
        here = (each for place, each in found if each is not None and place in ("", namespace))
        return [replace(each, namespace=namespace) for each in here]

    return services


def from_list(items: list[Object], source: str) -> list[Target]:
    """The targets among the BalancedServices of one namespace; one without an address yet can't be served."""
    found = (_target(item, source, strict=False) for item in items)
    return [each for each in found if each is not None]


def _target(item: Object, source: str, *, strict: bool = True) -> Target | None:
    service = parse(item)
    if not isinstance(service, BalancedService):
        if not strict:
            return None
        raise Unusable(
            "\n".join(f"{source}: {service.name}: {fault.path}: {fault.message}" for fault in service.faults)
        )
    found = target(service, given(item).address)
    if strict and found is None and service.proxy.mode == "Sidecar":
        raise Unusable(
            f"{source}: {service.name} has no status.sidecar.address: the operator gives it; take the file from "
            "kubectl get balancedservices -o yaml"
        )
    return found


def needed(objects: list[Object], default: str) -> list[str]:
    """The namespaces whose services are asked for."""
    return sorted({namespace_of(item, default) for item in objects if _injectable(item)})


def _injectable(item: Mapping[str, Any]) -> bool:
    return (str(item.get("apiVersion")), item["kind"]) in KINDS


def injected(
    objects: list[Object], default: str, services: Services, settings: InjectionSettings, warn: Callable[[str], None]
) -> Iterator[Object]:
    """Each object, injected where it makes pods. Raises Unusable."""
    for item in objects:
        namespace = namespace_of(item, default)
        name = f"{item['kind']} {(item.get('metadata') or {}).get('name', '(without a name)')}"
        result = inject_workload(item, namespace, services(namespace), settings) if _injectable(item) else None
        if isinstance(result, Refused):
            raise Unusable(f"{name}: {result.message}")
        for warning in result.warnings if result is not None else ():
            warn(f"{name}: {warning}")
        yield item if result is None else result.pod
