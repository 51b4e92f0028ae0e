"""A proxy with an operator: what its stream says is put in force, and what came of it is told back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from random import Random

from controller.balancing.affinity import Keys
from controller.balancing.eligible import usable
from controller.balancing.locality import Place
from controller.discovery.client import Client, Forget, Placed, Settings, Update
from controller.discovery.frames import BackendHealth
from controller.model.snapshot import Snapshot
from controller.proxy.holding import apply_or_hold, at_ports_of
from controller.proxy.hosting import PortInUse
from controller.proxy.plane import Plane
from controller.proxy.sidecar import withdrawn

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5  # how late the operator hears that a backend became usable or unusable
AGAIN = 5.0  # seconds until a port that another process had is tried again


def staying(snapshot: Snapshot, before: Snapshot) -> Snapshot:
    """The same, listened for where a Gateway's proxy is looked for: clients come to it until it is ended, though its
    object has another mode by then.

    Of the other modes nothing is kept: a replica that lags may have told a Gateway's new proxy of the mode before.
    """
    if before.mode != "Gateway" or snapshot.mode == "Gateway":
        return snapshot
    return at_ports_of(snapshot, before)


async def follow(plane: Plane, settings: Settings, *, again: float = AGAIN) -> None:
    """Keep the plane at what the operator says of the objects that `settings` names."""
    await Following(plane, settings, again).run()


class Following:
    """Applies, refuses and forgets as the stream says. A sidecar does some of it in its own way (`beside`).

    What was refused is tried again until it is in force, or something newer is.
    """

    def __init__(self, plane: Plane, settings: Settings, again: float = AGAIN) -> None:
        self._plane = plane
        self._again = again
        self._namespace = settings.namespace
        self._client = Client(settings, time.monotonic, Random(), self._health)
        self._refused: dict[str, tuple[Update, str]] = {}  # by name, with the reason
        self._applying = asyncio.Lock()
        plane.telemetry.control = lambda: (self._client.connected, time.monotonic() - self._client.heard)

    async def run(self) -> None:
        """For ever. A snapshot that can't be put in force is refused, and the last good one stays."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look(), name="health reports")
            tasks.create_task(self._try_again(), name="refused configurations")
            async for event in self._client.events():
                match event:
                    case Update():
                        async with self._applying:
                            await self._apply(event)
                    case Forget(name=name):
                        async with self._applying:
                            self._refused.pop(name, None)
                            await self.forget(name)
                        log.info("service removed", extra={"service": f"{self._namespace}/{name}"})
                    case Placed(node=node, zone=zone):
                        self._plane.upstreams.place(Place(node=node, zone=zone))

    async def _apply(self, update: Update) -> None:
        snapshot = update.snapshot
        name = "/".join(snapshot.key)
        if update.keys:
            self._plane.upstreams.rekey(snapshot.key, Keys(*update.keys[:2]))
        try:
            changed = await self.put(snapshot)
        except PortInUse as error:
            if self._refused.get(snapshot.name) != (update, str(error)):
                self._plane.telemetry.config_rejected += 1
                self._client.ack(snapshot.name, update.version, str(error))
                log.error(
                    "configuration refused, its ports stay as they are", extra={"service": name, "error": str(error)}
                )
            self._refused[snapshot.name] = (update, str(error))
            return
        self._refused.pop(snapshot.name, None)
        self._client.ack(snapshot.name, update.version)
        if changed:
            source = "disk" if update.stored else "operator"
            log.info("configuration in force", extra={"service": name, "version": update.version, "from": source})

    async def put(self, snapshot: Snapshot) -> bool:
        known = self._plane.snapshots.get(snapshot.key)
        return await apply_or_hold(self._plane, snapshot if known is None else staying(snapshot, known[0]))

    async def forget(self, name: str) -> None:
        """A Gateway goes with its object. What others run stays, and answers that the service is gone."""
        key = (self._namespace, name)
        known = self._plane.snapshots.get(key)
        if known is not None and known[0].mode == "External":
            await self._plane.apply(withdrawn(known[0]))
        else:
            await self._plane.forget(key)

    async def _try_again(self) -> None:
        while True:
            await asyncio.sleep(self._again)
            async with self._applying:
                for update, _ in tuple(self._refused.values()):
                    await self._apply(update)

    async def _look(self) -> None:
        """Reports at once when a backend gains its first usable endpoint or loses its last."""
        last: dict[str, dict[str, bool]] = {}
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            names = [name for namespace, name in self._plane.snapshots if namespace == self._namespace]
            now = {name: {backend: each.usable > 0 for backend, each in self._health(name).items()} for name in names}
            if now != last:
                last = now
                self._client.changed()

    def _health(self, name: str) -> Mapping[str, BackendHealth]:
        """By backend, over the object's first port: the others have the same pods."""
        now = self._plane.loop.time()
        for upstream in self._plane.upstreams:
            if upstream.snapshot.key == (self._namespace, name):
                return {
                    source.name: BackendHealth(
                        known=len(source.nodes),
                        usable=sum(node.endpoint.state == "ACTIVE" and usable(node, now) for node in source.nodes),
                    )
                    for source in upstream.sources
                }
        return {}
