"""What the API last said, indexed so that the part of one object is found at once, and whom a change concerns.

Until every kind had a complete list nothing is told to anyone, or a start would look like "no endpoints". Then every
object counts as changed, and from there on those that a change concerns: a slice its Service's objects, a Service the
objects that name it, a grant those that refer into its namespace, a child its owner. An equal record is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from controller.children.meta import OWNER_LABEL
from controller.kube.api import Object
from controller.kube.dependents import Dependents, depends_on
from controller.kube.table import Table
from controller.model.endpoints import Grant, ServiceRecord, Slice
from controller.model.parsing import parse
from controller.model.service import BalancedService, Invalid
from controller.translate.inputs import Given, Inputs, Key, ProxyReport, given

NODES = 20_000  # whose zone is remembered; Kubernetes is built for 5,000

ChildKey = tuple[str, str, str]  # (apiVersion, kind, name)


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A BalancedService as the writers see it: what they must not lose and what they compare with."""

    uid: str
    generation: int
    deleting: bool
    status: Object


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """Who hears of changes: `publish` with whether it can't wait, `write` with the key alone."""

    publish: Callable[[Key, bool], None]
    write: Callable[[Key], None]


class Store:
    """The state, and `inputs`: a view of it for `translate`. For one loop."""

    def __init__(
        self,
        listeners: Listeners,
        reports: Mapping[Key, Collection[ProxyReport]],
        *,
        namespaces: Collection[str] = (),
    ) -> None:
        scopes: tuple[str | None, ...] = tuple(sorted(namespaces)) or (None,)
        self.scopes = scopes
        self.opened: Callable[[], None] = lambda: None  # called once, when nothing is waited for any more
        self.owners: dict[Key, Owner] = {}
        self.children: dict[Key, dict[ChildKey, Object]] = {}
        self.services = Table[ServiceRecord]("services", scopes, self._service_changed)
        self.slices = Table[Slice]("endpointslices", scopes, self._slice_changed)
        self.grants = Table[Grant]("referencegrants", scopes, self._grant_changed)
        self._child_tables: list[Table[Object]] = []
        self._listed: set[str | None] = set()  # scopes whose BalancedServices had a complete list
        self._touched: set[Key] | None = None  # by events while a list is on its way
        self._listeners = listeners
        self._objects: dict[Key, BalancedService | Invalid] = {}
        self._given: dict[Key, Given] = {}
        self._by_service: dict[Key, tuple[Slice, ...]] = {}
        self._by_namespace: dict[str, tuple[Grant, ...]] = {}
        self._claims: dict[str, dict[str, set[str]]] = {}
        self._conflicts: dict[Key, tuple[str, ...]] = {}
        self._replicas: dict[Key, int] = {}
        self._dependents = Dependents()
        self._zones: dict[str, str] = {}
        self._open = False
        for table in (self.services, self.slices, self.grants):
            table.completed = self.check_synced
        self.inputs = Inputs(
            objects=self._objects,
            given=self._given,
            services=self.services.records,
            slices=self._by_service,
            grants=self._by_namespace,
            claims=self._claims,
            conflicts=self._conflicts,
            reports=reports,
            replicas=self._replicas,
            watched=frozenset(namespaces) or None,
        )

    def __repr__(self) -> str:
        waiting = ", ".join(self.waiting_for())
        return f"<Store {len(self._objects)} objects, {f'waiting for {waiting}' if waiting else 'synced'}>"

    @property
    def keys(self) -> Collection[Key]:
        return self._objects.keys()

    def may_exist(self, key: Key) -> bool:
        """Also what is in a namespace that is not watched: of its objects nothing is known, so none is gone."""
        watched = self.inputs.watched
        return key in self._objects or (watched is not None and key[0] not in watched)

    @property
    def synced(self) -> bool:
        return self._open

    def waiting_for(self) -> list[str]:
        """The kinds that had no complete list yet."""
        tables: list[Table[Any]] = [self.services, self.slices, self.grants, *self._child_tables]
        names = [table.name for table in tables if not table.complete]
        return names if self._listed >= set(self.scopes) else ["balancedservices", *names]

    def zone(self, node: str) -> str:
        """From all slices seen; "" when unknown."""
        return self._zones.get(node, "")

    def set_conflicts(self, key: Key, names: Iterable[str]) -> None:
        """Same-named children that are not ours, as the writers found them."""
        found = tuple(sorted(names))
        if found == self._conflicts.get(key, ()):
            return
        if found:
            self._conflicts[key] = found
        else:
            self._conflicts.pop(key, None)
        self._tell(key, urgent=False)

    # BalancedServices: from events and from a list every few minutes.

    def begin_list(self) -> None:
        """Before the request: from here on events are newer than what the list will say."""
        self._touched = set()

    def end_list(self, scope: str | None, items: Iterable[Object]) -> None:
        touched, self._touched = self._touched or set(), None
        listed = set()
        for item in items:
            key = _key(item)
            listed.add(key)
            if key not in touched:
                self._put(key, item)
        for key in [k for k in self._objects if (scope is None or k[0] == scope) and k not in listed | touched]:
            self._drop(key)
        self._listed.add(scope)
        self.check_synced()

    def event(self, kind: str | None, item: Object) -> None:
        """One watch event; None as kind is an item of kopf's own list."""
        key = _key(item)
        if self._touched is not None:
            self._touched.add(key)
        if kind == "DELETED":
            self._drop(key)
        else:
            self._put(key, item)

    def _put(self, key: Key, item: Object) -> None:
        meta = item["metadata"]
        self.owners[key] = Owner(
            uid=meta.get("uid") or "",
            generation=meta.get("generation") or 0,
            deleting="deletionTimestamp" in meta,
            status=item.get("status") or {},
        )
        new, out = parse(item), given(item)
        old, before = self._objects.get(key), self._given.get(key)
        if new == old and out == before:
            return  # such as our own write of the status
        self._objects[key] = new
        self._given[key] = out
        if before is None or before.address != out.address:
            self._claim(key, before.address if before else "", out.address)
        self._dependents.set(key, depends_on(new) if isinstance(new, BalancedService) else frozenset())
        self._tell(key, urgent=False)
        if old is None:
            self._tell_shared(key[0])

    def _drop(self, key: Key) -> None:
        if self._objects.pop(key, None) is None:
            return
        self._claim(key, self._given.pop(key).address, "")
        self._dependents.set(key, frozenset())
        del self.owners[key]
        self._conflicts.pop(key, None)
        self._tell(key, urgent=True)
        self._tell_shared(key[0])

    def _claim(self, key: Key, old: str, new: str) -> None:
        claims = self._claims.setdefault(key[0], {})
        if old and old in claims:
            claims[old].discard(key[1])
            if not claims[old]:
                del claims[old]
        if new:
            claims.setdefault(new, set()).add(key[1])
        if not claims:
            del self._claims[key[0]]

    # All else: from reflectors, by way of the tables.

    def child_table(self, api_version: str, kind: str) -> Table[Object]:
        """The sink for one kind of child."""

        def changed(key: Key, old: Object | None, new: Object | None) -> None:
            for item in (old, new):
                if item is not None:
                    self._child_changed((api_version, kind, key[1]), key[0], item, gone=item is not new)

        table = Table[Object](f"{kind} children", self.scopes, changed)
        table.completed = self.check_synced
        self._child_tables.append(table)
        return table

    def _child_changed(self, child: ChildKey, namespace: str, item: Object, *, gone: bool) -> None:
        key = (namespace, (item["metadata"].get("labels") or {}).get(OWNER_LABEL) or "")
        children = self.children.setdefault(key, {})
        if gone:
            children.pop(child, None)
            if not children:
                del self.children[key]
        else:
            children[child] = item
        if child[1] == "Deployment":
            self._count(key, 0 if gone else (item.get("status") or {}).get("replicas") or 0)
        if self._open:
            self._listeners.write(key)

    def _count(self, key: Key, replicas: int) -> None:
        if replicas:
            self._replicas[key] = replicas
        else:
            self._replicas.pop(key, None)

    def _service_changed(self, key: Key, old: ServiceRecord | None, new: ServiceRecord | None) -> None:
        self._tell_dependents(key, urgent=new is None)

    def _slice_changed(self, key: Key, old: Slice | None, new: Slice | None) -> None:
        for service in {each.key for each in (old, new) if each is not None}:
            rest = [each for each in self._by_service.get(service, ()) if each.name != key[1]]
            if new is not None and new.key == service:
                rest.append(new)
            if rest:
                self._by_service[service] = tuple(rest)
            else:
                self._by_service.pop(service, None)
            self._tell_dependents(service, urgent=bool(_active(old) - _active(new)))
        for endpoint in new.endpoints if new is not None else ():
            if endpoint.node and endpoint.zone and self._zones.get(endpoint.node) != endpoint.zone:
                if len(self._zones) >= NODES:
                    del self._zones[next(iter(self._zones))]
                self._zones[endpoint.node] = endpoint.zone

    def _grant_changed(self, key: Key, old: Grant | None, new: Grant | None) -> None:
        rest = tuple(each for each in self._by_namespace.get(key[0], ()) if each.name != key[1])
        found = (*rest, new) if new is not None else rest
        if found:
            self._by_namespace[key[0]] = found
        else:
            self._by_namespace.pop(key[0], None)
        for dependent in self._dependents.into(key[0]):
            self._tell(dependent, urgent=new is None)

    def _tell_dependents(self, service: Key, *, urgent: bool) -> None:
        for key in self._dependents.of(service):
            self._tell(key, urgent=urgent)

    def _tell(self, key: Key, *, urgent: bool) -> None:
        if self._open:
            self._listeners.publish(key, urgent)
            self._listeners.write(key)

    def _tell_shared(self, namespace: str) -> None:
        if self._open:
            self._listeners.write((namespace, ""))

    def check_synced(self) -> None:
        """Opens the store once nothing is waited for; then all objects count as changed."""
        if not self._open and not self.waiting_for():
            self._open = True
            self.opened()
            for key in self._objects:
                self._tell(key, urgent=False)


def _active(found: Slice | None) -> set[tuple[str, str]]:
    endpoints = found.endpoints if found is not None else ()
    return {(each.uid, each.address) for each in endpoints if each.state == "ACTIVE"}


def _key(item: Object) -> Key:
    return item["metadata"].get("namespace") or "", item["metadata"]["name"]
