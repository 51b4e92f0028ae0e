"""A proxy beside its client: follows an operator, serves at its start without one, and outlives its services."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

from controller.controlled import Following
from controller.discovery.client import Settings
from controller.model.snapshot import Snapshot
from controller.proxy.forward_proxy import serving
from controller.proxy.hosting import PortInUse
from controller.proxy.plane import DataPlane
from controller.proxy.sidecar import Sidecar, SidecarService, beside, pass_through, withdrawn

log = logging.getLogger(__name__)

RESOLUTION = 5.0  # seconds for DNS to answer, after which the client starts all the same


async def follow(plane: DataPlane, settings: Settings, sidecar: Sidecar) -> None:
    """Keep the plane at what the operator says. Raises AdminError if the forward proxy's port can't be had."""
    await _Beside(plane, settings, sidecar).run()


class _Beside(Following):
    def __init__(self, plane: DataPlane, settings: Settings, sidecar: Sidecar) -> None:
        super().__init__(plane, settings)
        self._data = plane
        self._sidecar = sidecar
        self._services = {service.name: service for service in sidecar.services}
        self._passing: set[str] = set()
        self._turn = asyncio.Lock()  # a configuration that comes while another way is being put in force is later
        plane.pending = {(settings.namespace, name) for name in self._services}
        plane.telemetry.pass_through = 0

    async def run(self) -> None:
        """For ever."""
        async with self._forwarding(), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._start(), name="start without the operator")
            tasks.create_task(super().run(), name="operator")

    async def put(self, snapshot: Snapshot) -> bool:
        async with self._turn:
            changed = await super().put(beside(snapshot, self._services[snapshot.name]))
            self._known(snapshot.name)
            return changed

    async def forget(self, name: str) -> None:
        async with self._turn:
            known = self._data.snapshots.get((self._namespace, name))
            snapshot = known[0] if known is not None else self._pass_through(self._services[name])
            try:
                await self._data.apply(withdrawn(snapshot))
            except PortInUse as error:
                log.error("the service is gone, and its port can't be had", extra={"error": str(error)})
                return
            self._known(name)

    def _known(self, name: str) -> None:
        self._passing.discard(name)
        self._data.telemetry.pass_through = len(self._passing)
        self._data.pending.discard((self._namespace, name))

    async def _start(self) -> None:
        """What has no configuration after the time to start goes to its ordinary Service until one comes."""
        await asyncio.sleep(self._sidecar.start_timeout)
        async with asyncio.TaskGroup() as tasks:
            for service in self._sidecar.services:
                tasks.create_task(self._pass(service), name=f"pass through {service.name}")

    async def _pass(self, service: SidecarService) -> None:
        key = (self._namespace, service.name)
        async with self._turn:
            if key in self._data.snapshots:
                return
            try:
                await self._data.apply(self._pass_through(service))
            except PortInUse as error:
                log.error("a service's port can't be had", extra={"service": "/".join(key), "error": str(error)})
                return
            self._passing.add(service.name)
            self._data.telemetry.pass_through = len(self._passing)
        log.warning("no configuration yet; requests go to the ordinary Service", extra={"service": "/".join(key)})
        with suppress(TimeoutError):
            async with asyncio.timeout(RESOLUTION):
                await self._resolved(key, service.ports[0].name)
        self._data.pending.discard(key)

    async def _resolved(self, key: tuple[str, str], port: str) -> None:
        upstreams, changed = self._data.upstreams, asyncio.Event()
        upstreams.watchers.append(changed.set)
        try:
            while (upstream := upstreams.get(key, port)) is not None and not upstream.known:
                changed.clear()
                await changed.wait()
        finally:
            upstreams.watchers.remove(changed.set)

    def _forwarding(self) -> AbstractAsyncContextManager[None]:
        address = self._sidecar.forward_proxy
        if address is None:
            return nullcontext()
        return serving(self._data, self._namespace, self._sidecar.domain, address)

    def _pass_through(self, service: SidecarService) -> Snapshot:
        return pass_through(self._namespace, service, self._sidecar.domain)
