"""The operator's composition root: every part is made here, and every long-lived task is listed by name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from aiohttp import web

from controller import admin
from controller.certified import RETRY, UNREACHABLE, Certified, Told
from controller.children import ChildSettings, authority, children
from controller.discovery.frames import AUDIENCE, Report
from controller.discovery.hub import Hub, Published
from controller.discovery.relay import Relay, Way
from controller.discovery.server import Access, Discovery
from controller.discovery.tokens import Authenticator, Identity
from controller.injection import InjectionSettings
from controller.kube.api import Api, Object, load
from controller.kube.injector import Injector, WebhookConfiguration
from controller.kube.operator import Operator, Proxies, Scope
from controller.kube.owner import own_deployment
from controller.kube.reconciler import Desired
from controller.kube.reports import Reports
from controller.kube.tokens import Reviewer
from controller.kube.writers import NotYetError
from controller.model.service import BalancedService
from controller.model.snapshot import Snapshot
from controller.operations import Operations, registry
from controller.settings import OperatorSettings
from controller.translate import Key, Translated

log = logging.getLogger(__name__)


class ControlPlane:
    """All parts of one operator process. `run` until SIGTERM or SIGINT."""

    def __init__(self, settings: OperatorSettings, api: Api, owner: Object | None) -> None:
        self._settings = settings
        self._serving = False
        self._ending = False
        self._wire: dict[str, int] = {}  # events of the discovery server
        host = f"{settings.service}.{settings.namespace}.svc"
        self._children = _child_settings(settings, f"https://{host}:{settings.discovery_port}")
        self._certified = Certified(
            settings,
            api,
            owner,
            [host, f"{host}.{settings.cluster_domain}"],
            Told(
                now=lambda: datetime.now(UTC),
                leading=lambda: self.operator.elector.leading,
                changed=lambda: self.operator.everything_changed(),
                warn=lambda reason, note: self.operator.warn(reason, note),
            ),
        )
        self.hub = Hub(lambda key: self.operator.store.may_exist(key))
        self.reports = Reports()
        self.operator = Operator(
            api,
            lambda: load(settings.kubeconfig),
            Scope(
                namespace=settings.namespace,
                identity=f"{settings.pod or 'operator'}-{secrets.token_hex(3)}@{_address(settings)}",
                lease=settings.lease,
                namespaces=settings.watch,
                owner=owner,
                rollouts=settings.max_rollouts,
                injection=settings.webhook is not None or settings.injection_policy,
            ),
            Proxies(put=self._put, gone=self._gone, synced=self.hub.sync, reports=self.reports),
            Desired(children=self._wanted, shared=self._shared),
        )
        self.reports.changed = lambda key: self.operator.reported(key, self.reports.count(key))
        self.injector = Injector(
            self.operator.store.inputs, lambda: self.operator.ready, _injection_settings(settings, self._children)
        )
        self._configuration = WebhookConfiguration(api, settings.webhook_configuration)
        self.discovery = Discovery(
            self.hub,
            Authenticator(Reviewer(api, AUDIENCE, Identity), time.time),
            Access(
                allowed=self.operator.may_read,
                zone=self.operator.store.zone,
                connected=self._connected,
                reported=self._reported,
                relayed=self._relayed,
                replica=f"system:serviceaccount:{settings.namespace}:{settings.account}" if settings.account else "",
            ),
            self._count,
        )
        self.relay = Relay(
            Way(
                holder=self._holder,
                trust=lambda: self._certified.peers,
                server_name=host,
                token=Path(settings.token_file or ""),
            ),
            Random(),
        )

    async def run(self) -> None:
        """Until a signal: then unready, the Lease given back, proxies sent elsewhere, and all closed."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with contextlib.AsyncExitStack() as listeners:
            await self._listen(listeners)
            tasks = asyncio.ensure_future(self._tasks())
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait([tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            self._ending = True
            self.discovery.end()
            tasks.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await tasks

    async def _tasks(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.operator.run(), name="operator")
            tasks.create_task(self._serve(), name="discovery")
            if self._settings.token_file:
                tasks.create_task(self.relay.run(), name="relay")
            if self._settings.webhook_configuration:
                tasks.create_task(self._keep_trusted(), name="webhook configuration")

    async def _listen(self, listeners: contextlib.AsyncExitStack) -> None:
        view = admin.View(
            ready=lambda: self.operator.ready and self._serving and not self._ending,
            registry=registry(self._operations),
            config=lambda: {name: each.version for name, each in self._published()},
            endpoints=lambda: {name: msgspec.Raw(each.body) for name, each in self._published()},
        )
        for option, address in (("--health", self._settings.health), ("--admin", self._settings.admin)):
            if address is not None:
                app = admin.application(view, full=option == "--admin")
                app.middlewares.append(self._alive)
                runner = await admin.serve(app, *address, option)
                listeners.push_async_callback(runner.cleanup)

    @web.middleware
    async def _alive(self, request: web.Request, handler: Any) -> web.StreamResponse:
        faults = self.operator.faults() if request.path == "/healthz" else []
        if faults:
            return web.Response(text="\n".join(faults) + "\n", status=503)
        found: web.StreamResponse = await handler(request)
        return found

    async def _serve(self) -> None:
        """Serves snapshots once there is a certificate, and follows what the Secrets say."""
        own = self._certified
        await own.first()
        webhook = web.AppRunner(self.injector.app, access_log=None, handle_signals=False, shutdown_timeout=2.0)
        runner = web.AppRunner(
            self.discovery.app, access_log=None, handle_signals=False, handler_cancellation=True, shutdown_timeout=2.0
        )
        await runner.setup()
        await webhook.setup()
        try:
            await web.SockSite(runner, admin.bound(*self._settings.discovery), ssl_context=own.discovery).start()
            if self._settings.webhook is not None:
                await web.SockSite(webhook, admin.bound(*self._settings.webhook), ssl_context=own.webhook).start()
            self._serving = True
            while True:
                await asyncio.sleep(own.period)
                await own.look()
        finally:
            await runner.cleanup()
            await webhook.cleanup()

    async def _keep_trusted(self) -> None:
        """So that the API server trusts the webhook, whenever the configuration is applied anew."""
        own = self._certified
        while True:
            pause = RETRY
            own.retold.clear()
            if own.trusted and self.operator.elector.leading:
                try:
                    if await self._configuration.trust(own.trusted):
                        pause = self._settings.secret_period
                except UNREACHABLE as error:
                    log.warning("the webhook's configuration was not written", extra={"error": str(error)})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(own.retold.wait(), pause)

    def _put(self, snapshot: Snapshot) -> None:
        self.reports.published(snapshot)
        self.hub.put(snapshot, self._certified.keys(snapshot.uid), self.operator.freshness)

    def _gone(self, key: Key) -> None:
        self.reports.gone(key)
        self.hub.gone(key)

    def _connected(self, key: Key, proxy: str, here: bool) -> None:
        self.reports.connected(key, proxy, here)
        if not here:
            self.relay.left(key, proxy)

    def _holder(self) -> str | None:
        elector = self.operator.elector
        return None if elector.leading else elector.holder.partition("@")[2] or None

    def _reported(self, key: Key, proxy: str, report: Report) -> None:
        self.relay.heard(key, proxy, report, here=self.reports.here(key, proxy))
        self._relayed(key, proxy, report)

    def _relayed(self, key: Key, proxy: str, report: Report) -> None:
        ack = (report.ack.version, "" if report.ack.ok else report.ack.error or "refused") if report.ack else None
        health = {name: (each.known, each.usable) for name, each in report.health.items()}
        self.reports.reported(key, proxy, ack, health)

    def _wanted(self, service: BalancedService, result: Translated) -> Sequence[Object]:
        assert result.snapshot is not None
        return children(service, result.snapshot, result.admitted, self._children, bridged=result.bridged)

    def _shared(self, namespace: str, owners: Collection[BalancedService]) -> Sequence[Object]:
        if not self._certified.trusted:
            raise NotYetError
        return [authority(namespace, owners, self._certified.trusted.decode())]

    def _count(self, event: str) -> None:
        self._wire[event] = self._wire.get(event, 0) + 1

    def _operations(self) -> Operations:
        operator = self.operator
        return Operations(
            synced=operator.ready,
            leading=operator.elector.leading,
            objects=len(operator.store.keys),
            queued=operator.queued,
            streams=self.discovery.streams,
            ages=operator.ages(),
            counts=operator.counts() | {"relay_failures": self.relay.failures},
            wire=self._wire,
            uninjected=operator.askers.missing if operator.askers is not None else 0,
            admissions=self.injector.counts,
            certificate_ends=self._certified.ends,
        )

    def _published(self) -> Iterator[tuple[str, Published]]:
        for key in sorted(self.operator.store.keys):
            published = self.hub.get(key)
            if published is not None:
                yield "/".join(key), published


def _child_settings(settings: OperatorSettings, control: str) -> ChildSettings:
    found = ChildSettings(
        image=settings.proxy_image,
        control=control,
        image_pull_policy=settings.proxy_pull_policy,
        image_pull_secrets=settings.proxy_pull_secrets,
        priority_class_name=settings.proxy_priority_class,
    )
    if settings.proxy_resources is not None:
        found = msgspec.structs.replace(found, resources=settings.proxy_resources)
    return found


def _injection_settings(settings: OperatorSettings, children: ChildSettings) -> InjectionSettings:
    found = InjectionSettings(
        proxy=children,
        version=version("steelyard"),
        cluster_domain=settings.cluster_domain,
        start_timeout=settings.sidecar_start_timeout,
    )
    if settings.sidecar_resources is not None:
        found = msgspec.structs.replace(found, resources=settings.sidecar_resources)
    return found


def _address(settings: OperatorSettings) -> str:
    host = f"[{settings.address}]" if ":" in settings.address else settings.address
    return f"{host}:{settings.discovery[1]}"


async def run(settings: OperatorSettings) -> None:
    """One operator process, until SIGTERM or SIGINT. Raises ConfigException if there is no cluster to speak to."""
    await load(settings.kubeconfig)
    api = Api(lambda: load(settings.kubeconfig), f"steelyard/{version('steelyard')}")
    try:
        await ControlPlane(settings, api, await own_deployment(api, settings.namespace, settings.deployment)).run()
    finally:
        await api.close()
