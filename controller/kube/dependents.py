"""Which BalancedServices depend on which Services: both ways, so that an event finds whom it concerns at once."""

from __future__ import annotations

from collections.abc import Iterable

from controller.model.names import headless_name
from controller.model.service import BalancedService
from controller.translate.inputs import Key


class Dependents:
    """Objects by Service, kept as objects come, change and go."""

    def __init__(self) -> None:
        self._named_by: dict[Key, set[Key]] = {}
        self._names: dict[Key, frozenset[Key]] = {}

    def __repr__(self) -> str:
        return f"<Dependents {len(self._names)} objects on {len(self._named_by)} services>"

    def set(self, key: Key, services: frozenset[Key]) -> None:
        """The object depends on these from now on; on none: it is forgotten."""
        before = self._names.pop(key, frozenset())
        for service in before - services:
            self._named_by[service].discard(key)
            if not self._named_by[service]:
                del self._named_by[service]
        for service in services - before:
            self._named_by.setdefault(service, set()).add(key)
        if services:
            self._names[key] = services

    def of(self, service: Key) -> Iterable[Key]:
        return tuple(self._named_by.get(service, ()))

    def into(self, namespace: str) -> Iterable[Key]:
        """The objects that depend on any Service of the namespace."""
        return {key for service, keys in self._named_by.items() if service[0] == namespace for key in keys}


def depends_on(service: BalancedService) -> frozenset[Key]:
    """The Services whose records or slices the object is translated from; its own tells which proxies are ready."""
    found = {service.key}
    for backend in service.backends:
        if backend.service is not None:
            found.add((backend.service.namespace or service.namespace, backend.service.name))
        elif backend.selector is not None:
            found.add((service.namespace, headless_name(service.name, backend.name)))
    return frozenset(found)
