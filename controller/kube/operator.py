"""The operator as one object: what it reads, whom it tells, and its long-lived tasks by name."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

import msgspec
from kubernetes.aio.client import Configuration

from controller.kube.api import Api, Object
from controller.kube.askers import Askers, asker_record
from controller.kube.events import Recorder, Said
from controller.kube.handlers import Front
from controller.kube.lease import Elector
from controller.kube.lister import Lister
from controller.kube.publisher import Publisher
from controller.kube.reconciler import ROLLOUTS, Desired, Reconciler
from controller.kube.reflector import Reflector
from controller.kube.resources import ASKING_PODS, CHILDREN, ENDPOINT_SLICES, REFERENCE_GRANTS, SERVICES
from controller.kube.store import Listeners, Store
from controller.kube.writers import Writers
from controller.model.endpoints import grant_record, service_record, slice_record
from controller.model.names import proxy_name
from controller.model.service import BalancedService
from controller.model.snapshot import Snapshot
from controller.translate.inputs import Key, ProxyReport

SILENT = 300.0  # seconds without a byte after which a stream counts as dead; it reconnects after 70
UNLISTED = 1200.0  # seconds without a whole list of BalancedServices
FRONT = 300.0  # seconds without a sign of life of kopf's loop; its starts are at most a minute apart

log = logging.getLogger(__name__)


class Proxies(msgspec.Struct, frozen=True, kw_only=True):
    """The side that proxies are on: where snapshots go, and what came back."""

    put: Callable[[Snapshot], object]
    gone: Callable[[Key], None]
    synced: Callable[[], None]  # everything known has been put
    reports: Mapping[Key, Collection[ProxyReport]]


class Account(Protocol):
    """Who a token stands for: a service account, "" for another kind of user."""

    @property
    def namespace(self) -> str: ...

    @property
    def account(self) -> str: ...

    @property
    def pod(self) -> str: ...

    @property
    def pod_uid(self) -> str: ...


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Where we are and what we look at."""

    namespace: str  # our own
    identity: str  # unique to this process, and how other replicas reach it
    lease: str = "steelyard-controller"
    namespaces: frozenset[str] = frozenset()  # watched; empty = all
    rollouts: int = ROLLOUTS  # Deployments that roll at a time
    injection: bool = False  # pods are given sidecars, by whomever: watch those that ask for one
    owner: Object | None = None  # an ownerReference to our Deployment, for what we make in our own namespace


class Operator:
    """`run` for ever. Ready means that proxies can be told; `faults` names what a restart would mend."""

    def __init__(
        self,
        api: Api,
        configure: Callable[[], Awaitable[Configuration]],
        scope: Scope,
        proxies: Proxies,
        desired: Desired,
    ) -> None:
        self._proxies = proxies
        self._scope = scope
        listeners = Listeners(publish=self._publish, write=self._write)
        self.store = Store(listeners, proxies.reports, namespaces=scope.namespaces)
        self.elector = Elector(api, scope.namespace, scope.lease, scope.identity, owner=scope.owner)
        self._recorder = Recorder(api, scope.identity)
        self._publisher = Publisher(self.store.inputs, proxies.put, proxies.gone)
        self._writers = Writers(api, lambda: self.elector.left)
        self._reconciler = Reconciler(self.store, self._writers, self._recorder, desired, scope.rollouts)
        self._lister = Lister(api, self.store)
        self.front = Front(configure, self._event, scope.namespaces)
        self._synced = asyncio.Event()
        self.ready = False  # all caches had a complete list, and all that is known has been published
        self.askers = Askers(self.store.scopes) if scope.injection else None
        self._reflectors = self._make_reflectors(api)
        for reflector in self._reflectors:
            reflector.listed = self._lister.soon  # what lost its history is seldom one kind alone
        self.store.opened = self._synced.set

    def __repr__(self) -> str:
        return f"<Operator {self.store!r} {self.elector!r}>"

    @property
    def freshness(self) -> int:
        """Up to which version the slices are known: by it proxies tell a replica that lags from one that is ahead.

        The list's own version counts too. Of a slice that is gone by now an operator that starts would never hear, and
        seem to lag behind the one before it. Versions are compared for nothing else.
        """
        return max((each.reached for each in self._reflectors if each.resource is ENDPOINT_SLICES), default=0)

    def reported(self, key: Key, proxies: int) -> None:
        """One of so many proxies of that object came, left, acknowledged or changed its health."""
        self._reconciler.reported(key, proxies)

    def everything_changed(self) -> None:
        """Of what goes with every snapshot or into every namespace, such as a key or the authority."""
        if self.store.synced:
            for key in self.store.keys:
                self._publish(key, True)
            for namespace in {key[0] for key in self.store.keys}:
                self._write((namespace, ""))

    def warn(self, reason: str, note: str) -> None:
        """An Event of our own Deployment; none outside a cluster. Written while we lead."""
        owner = self._scope.owner
        if owner is not None:
            key, kind = (self._scope.namespace, owner["name"]), (owner["apiVersion"], owner["kind"])
            self._recorder.say(Said(key, owner["uid"], "Warning", reason, "Configure", note, kind))

    async def may_read(self, identity: Account, key: Key) -> bool:
        """Whose proxies may have the object: a Gateway's own account, in a pod of its namespace that asks for a sidecar
        any, and so for `External` objects.

        What doesn't exist may be asked for by the namespace's own, to be told so. A sidecar goes on when its object
        changes to another mode. Without injection nobody knows the sidecars, and any account may have their objects.
        """
        if identity.namespace != key[0]:
            return False
        if self.askers is not None and self.askers.has(key[0], identity.pod, identity.pod_uid):
            return True
        service = self.store.inputs.objects.get(key)
        open_modes = ("External",) if self.askers is not None else ("External", "Sidecar")
        if isinstance(service, BalancedService) and service.proxy.mode in open_modes:
            return True
        return service is None or identity.account == proxy_name(key[1])

    def faults(self) -> list[str]:
        """Empty while alive."""
        found = [
            f"{reflector!r} silent for {reflector.age():.0f} s"
            for reflector in self._reflectors
            if reflector.age() > SILENT
        ]
        if self._lister.age() > UNLISTED:
            found.append(f"no list of BalancedServices for {self._lister.age():.0f} s")
        if self._lister.listed.is_set() and self.front.age() > FRONT:
            found.append(f"kopf's loop silent for {self.front.age():.0f} s")
        return found

    def counts(self) -> dict[str, int]:
        """Since the start, by the words of `telemetry.OPERATOR_COUNTS`."""
        return {
            "watch_errors": sum(reflector.errors for reflector in self._reflectors) + self._lister.errors,
            "front_restarts": self.front.restarts,
            "publish_failures": self._publisher.failures,
            "reconcile_failures": self._reconciler.failures,
            "writes": self._writers.writes,
            "events_dropped": self._recorder.dropped,
            "lease_taken": self.elector.transitions,
        }

    def ages(self) -> dict[str, float]:
        """Seconds since a watch's last byte, by kind; the oldest of several."""
        found: dict[str, float] = {"balancedservices": self._lister.age()}
        for reflector in self._reflectors:
            name = str(reflector.resource) + ("/children" if reflector.resource in CHILDREN.values() else "")
            found[name] = max(found.get(name, 0.0), reflector.age())
        return found

    @property
    def queued(self) -> int:
        return self._reconciler.queued

    async def run(self) -> None:
        """For ever; a task that fails ends all of it."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run(), name=repr(reflector))
            tasks.create_task(self._lister.run(), name="list of BalancedServices")
            tasks.create_task(self._watch(), name="kopf")
            tasks.create_task(self._run_publisher(), name="publisher")
            tasks.create_task(self._lead(), name="leader election")

    async def _watch(self) -> None:
        await self._lister.listed.wait()  # with scanning off kopf never notices a CRD that comes later
        await self.front.run(self._lister.soon)

    async def _run_publisher(self) -> None:
        await self._synced.wait()
        await self._publisher.run(self._first_published)

    def _first_published(self) -> None:
        self._proxies.synced()
        self.ready = True

    async def _lead(self) -> None:
        await self._synced.wait()
        await asyncio.sleep(random.uniform(0.0, 0.5))  # replicas that start together
        await self.elector.run(self._write_all)

    async def _write_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reconciler.run(), name="reconciler")
            if self.askers is not None:
                tasks.create_task(self.askers.report(self._recorder.say), name="pods without a sidecar")

    def _event(self, kind: str | None, item: Object) -> None:
        if kind is None:  # kopf lists anew, and would never tell what went meanwhile
            self._lister.soon()
        self.store.event(kind, item)

    def _publish(self, key: Key, urgent: bool) -> None:
        self._publisher.changed(key, urgent)

    def _write(self, key: Key) -> None:
        self._reconciler.changed(key)

    def _make_reflectors(self, api: Api) -> list[Reflector[Any]]:
        found: list[Reflector[Any]] = []
        store = self.store
        children = [(resource, _child_record(*kind), store.child_table(*kind)) for kind, resource in CHILDREN.items()]
        for scope in store.scopes:
            found.append(Reflector(api, SERVICES, service_record, store.services, namespace=scope))
            found.append(Reflector(api, ENDPOINT_SLICES, slice_record, store.slices, namespace=scope))
            found.append(Reflector(api, REFERENCE_GRANTS, grant_record, store.grants, namespace=scope))
            if self.askers is not None:
                found.append(Reflector(api, ASKING_PODS, asker_record, self.askers.table, namespace=scope))
            for resource, record, table in children:
                found.append(Reflector(api, resource, record, table, namespace=scope))
        return found


def _child_record(api_version: str, kind: str) -> Callable[[Object], Object]:
    """The object itself, without what nobody compares. Items of a list lack their kind."""

    def record(item: Object) -> Object:
        meta = {name: value for name, value in item["metadata"].items() if name != "managedFields"}
        return item | {"apiVersion": api_version, "kind": kind, "metadata": meta}

    return record
