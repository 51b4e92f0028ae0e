"""`DataPlane`: all that one proxy process carries traffic with, and the tick that keeps its deadlines.

Snapshots come in by `change`, `apply` and `forget`; which sockets exist follows from them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from email.utils import formatdate
from random import Random
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from controller.balancing.locality import Place
from controller.line_writer import LineWriter
from controller.model.snapshot import Snapshot, SnapshotPort
from controller.proxy.access_log import AccessLog, Lines
from controller.proxy.codec import Identifiers, Limits
from controller.proxy.edge import guarded
from controller.proxy.hosting import Address, Bind, Host, bind
from controller.proxy.lane import Lane
from controller.proxy.lanes import Lanes
from controller.proxy.listener import Front
from controller.proxy.memory import Memory, budget
from controller.proxy.moving import move
from controller.proxy.owning import plan
from controller.proxy.route import Route
from controller.proxy.seat import Seat
from controller.proxy.sharing import Carrying
from controller.proxy.shedding import shed
from controller.proxy.splicing import Pipes
from controller.proxy.tcp import TcpFront
from controller.proxy.timers import LoopTimers
from controller.proxy.upstream import Upstream
from controller.proxy.upstreams import Key, Upstreams
from controller.settings import ProxySettings
from controller.telemetry import Gauges, Telemetry

Client = Front | TcpFront

log = logging.getLogger(__name__)


class Part(NamedTuple):
    """What a worker is given by its parent, and a lone process does without."""

    worker: int
    sharing: Carrying
    bind: Bind


class Plane(Protocol):
    """What a source of snapshots sees of whoever carries the traffic: this process, or a fleet of workers."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def telemetry(self) -> Telemetry: ...

    @property
    def upstreams(self) -> Upstreams: ...

    @property
    def snapshots(self) -> Mapping[Key, tuple[Snapshot, str, float]]: ...

    @property
    def ready(self) -> bool: ...

    async def apply(self, snapshot: Snapshot) -> bool:
        """Put a whole state in force; False if it was already. Raises PortInUse, and then changes nothing."""
        ...

    async def forget(self, key: Key) -> None:
        """The object is gone: its ports close, and what is in flight has its drain."""
        ...

    async def change(self, snapshots: Sequence[Snapshot], gone: Collection[Key] = ()) -> Collection[Key]:
        """Both, of several objects at once: a port may pass from one to another, and is listened on all the time.

        Returns whose state is another than before. Raises PortInUse, and then changes nothing.
        """
        ...

    def idle(self) -> Iterator[tuple[Upstream, Mapping[str, int]]]: ...


class DataPlane:
    """Made and used inside a running loop."""

    def __init__(
        self,
        settings: ProxySettings,
        telemetry: Telemetry,
        lines: Lines | None = None,
        part: Part | None = None,
    ) -> None:
        identity = settings.identity or secrets.token_hex(8)
        seat = Seat(identity=identity, place=Place(node=settings.node, zone=settings.zone))
        if part is not None:
            seat = replace(seat, worker=part.worker, workers=settings.workers)
        self.sharing = sharing = part.sharing if part is not None else None
        self.settings = settings
        self.telemetry = telemetry
        self.loop = asyncio.get_running_loop()
        self.memory = Memory((settings.memory if settings.memory is not None else budget()) // settings.workers)
        self.pipes = Pipes(settings.pipes)
        self.access_log = AccessLog(lines or LineWriter())
        self.random = Random(f"{identity}/{seat.worker}")
        self.head_limits = Limits(
            head_bytes=settings.head_bytes, fields=settings.fields, informational=settings.informational
        )
        self.fronts: set[Client] = set()
        self.client_room = 1 << 30  # client connections that the process's descriptors allow
        self.lingering = 0  # connections that are discarded from
        self.date = b""
        self.snapshots: dict[Key, tuple[Snapshot, str, float]] = {}  # with version, and when it was applied
        self.pending: set[Key] = set()  # without these there is no readiness
        self._lanes = Lanes(sharing)
        self.upstreams = Upstreams(seat, LoopTimers(), self._lanes.gone, self._lanes.returned, sharing)
        self.upstreams.on_ejected = lambda upstream, cause: telemetry.ejected(upstream.service, cause)
        self.upstreams.on_verdict = lambda upstream, healthy: telemetry.judged(upstream.service, healthy=healthy)
        self._owners: Mapping[Address, Key] = {}
        self._host = Host(settings, part.bind if part is not None else bind)
        self._empty = asyncio.Event()
        self.identifiers = Identifiers(secrets.token_hex(6).encode())  # of requests: a UUID each would cost 2 µs
        self._closing = False
        self._swept = 0.0  # when idle connections to endpoints were last looked at
        telemetry.gauges = self.gauges
        telemetry.memory = lambda: (self.memory.held, self.memory.refused, self.memory.unkept)
        self._timer: asyncio.TimerHandle
        self._tick()

    # Snapshots.

    async def apply(self, snapshot: Snapshot) -> bool:
        return bool(await self.change((snapshot,)))

    async def forget(self, key: Key) -> None:
        await self.change((), (key,))

    async def change(self, snapshots: Sequence[Snapshot], gone: Collection[Key] = ()) -> Collection[Key]:
        planned = plan(self._owners, self.snapshots, snapshots, gone, self.settings)
        self._host.reserve(address for address, _, _ in planned.ports)
        unwanted = self._owners.keys() - planned.owners.keys()
        self._owners = planned.owners
        for snapshot, version in planned.snapshots:
            self._take(snapshot, version)
        lanes = {address: self._lane(snapshot, port) for address, snapshot, port in planned.ports}
        turned = self._host.turn(lanes)
        move(self.fronts, turned)
        await self._host.serve(lanes, unwanted)
        if turned:
            await asyncio.sleep(0)  # by then what had just been accepted is among `fronts`
            move(self.fronts, turned)
        for snapshot, _ in planned.snapshots:
            self._lanes.retire(snapshot.key, {port.name for port in snapshot.ports})
        for key in planned.gone:
            self.upstreams.forget(key)
            self.snapshots.pop(key, None)
            self._lanes.retire(key)
        return planned.keys

    def _take(self, snapshot: Snapshot, version: str) -> None:
        known = self.snapshots.get(snapshot.key)
        self.upstreams.apply(snapshot)
        most = snapshot.limits.max_connections
        if most > self.client_room and (known is None or most != known[0].limits.max_connections):
            log.warning(
                "maxConnections is more than descriptors allow",
                extra={"service": "/".join(snapshot.key), "clients": self.client_room},
            )
        self.telemetry.config_applied += 1
        self.snapshots[snapshot.key] = (snapshot, version, time.time())

    def _lane(self, snapshot: Snapshot, port: SnapshotPort) -> Lane:
        route = Route(snapshot, port, self.settings)
        lane = self._lanes.find(snapshot.key, port.name)
        if lane is not None:
            lane.apply(route)
            return lane
        upstream = self.upstreams.get(snapshot.key, port.name)
        assert upstream is not None
        lane = Lane(self, upstream, route)
        lane.closing = self._closing
        self._lanes.add(snapshot.key, port.name, lane)
        return lane

    # What is known.

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Those in force, and those whose work isn't done."""
        return tuple(self._lanes)

    @property
    def addresses(self) -> Mapping[Address, Lane]:
        """What is listened on: the real address (port 0 is resolved), and what is behind it."""
        return self._host.addresses

    def idle(self) -> Iterator[tuple[Upstream, Mapping[str, int]]]:
        """Each upstream with its idle connections, by endpoint."""
        for lane in self.lanes:
            yield lane.upstream, {pool.node.id: pool.idle for pool in lane.pools}

    @property
    def ready(self) -> bool:
        """Has its configurations, and isn't leaving."""
        return bool(self.snapshots) and not self.pending and not self._closing

    def gauges(self) -> Mapping[str, Gauges]:
        services: dict[str, Gauges] = {}
        self.telemetry.log_lost = self.access_log.lost
        for front in self.fronts:
            if isinstance(front, TcpFront):
                front.tally()
        for lane in self.lanes:
            gauges = services.setdefault(lane.service, Gauges())
            upstream = lane.upstream
            gauges.in_flight += sum(node.inflight for node in upstream.nodes)
            gauges.waiting += len(lane.queue)
            gauges.clients += lane.connections
            gauges.idle += sum(pool.idle for pool in lane.pools)
            gauges.usable += upstream.usable
            gauges.known += upstream.known
        for (namespace, name), (_, version, applied) in self.snapshots.items():
            gauges = services.setdefault(f"{namespace}/{name}", Gauges())
            gauges.version, gauges.applied = version, applied
        return services

    # The tick.

    def _tick(self) -> None:
        # Armed first: whatever happens below, deadlines are kept for as long as the process lives.
        self._timer = self.loop.call_later(self.settings.coarse_tick, self._tick)
        now = time.monotonic()
        self.date = formatdate(usegmt=True).encode()
        for front in tuple(self.fronts):
            if front.deadline <= now:
                guarded(front, front.expire, now)
        if self.memory.tight:
            shed(self.fronts, self.memory, now)
        if now - self._swept >= 1.0:
            self._swept = now
            for front in tuple(self.fronts):
                guarded(front, front.look)
            self._lanes.sweep(now)
        self.access_log.flush()

    # The end; `drain` calls these in order.

    def announce(self) -> None:
        """Responses say `Connection: close` from now on, and readiness is gone."""
        self._closing = True
        for lane in self.lanes:
            lane.closing = True

    async def stop_listening(self) -> None:
        await self._host.stop()
        for front in tuple(self.fronts):
            front.close_idle()

    async def emptied(self) -> None:
        """Until no client connection is left."""
        while self.fronts:
            self._empty.clear()
            await self._empty.wait()

    def left(self, front: Client) -> None:
        """A client connection is gone."""
        self.fronts.discard(front)
        if not self.fronts:
            self._empty.set()
        self._lanes.settle(front.lane)

    def close(self) -> None:
        """Release what is left: timers, idle connections to endpoints."""
        self._timer.cancel()
        self.upstreams.close()
        for lane in self.lanes:
            lane.close()
        self.pipes.close()
        self.access_log.close()

    def __repr__(self) -> str:
        return f"<DataPlane services={len(self.snapshots)} clients={len(self.fronts)} {self.memory}>"
