"""A worker process: it carries what the parent decides. `python -P -m controller.proxy.worker CHANNEL SOCKETS`.

Messages are put in force one after the other. Signals are the parent's business; a worker whose parent is gone ends.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from mmap import mmap

import uvloop

from controller.balancing.affinity import Keys
from controller.balancing.locality import Place
from controller.balancing.node import Kind
from controller.log_format import configure_logging
from controller.proxy.block import Block
from controller.proxy.counting import report
from controller.proxy.descriptors import raise_descriptor_limit
from controller.proxy.drain import drain
from controller.proxy.hosting import Address
from controller.proxy.messages import (
    SOCKETS,
    Begin,
    Change,
    Channel,
    Done,
    FromParent,
    Heard,
    Leave,
    Placed,
    Rekey,
    Stand,
)
from controller.proxy.plane import DataPlane, Part
from controller.proxy.sharing import Carrying
from controller.proxy.sidecar import withdrawn
from controller.telemetry import Telemetry

REPORTED = 0.2  # seconds between two reports: how old the pod's metrics may be
HEARD = 0.01  # seconds that outcomes are gathered for: how late an ejection may be
LOOK = 0.01  # seconds between two looks at full endpoints, which other workers may have freed
GLANCE = 0.05  # the same where no object has a limit, or no clients: 10 ms would cost an idle worker 0.8 % of a core


class Worker:
    """Made inside a running loop; `run` serves until the parent says `Leave`, or is gone."""

    def __init__(self, sockets: socket.socket) -> None:
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[FromParent | None] = asyncio.Queue()
        self._channel: Channel[FromParent] = Channel(
            FromParent, self._inbox.put_nowait, lambda: self._inbox.put_nowait(None)
        )
        self._outcomes: list[tuple[str, str, float, str, float, int]] = []
        self._bound: dict[Address, socket.socket] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._carrying: Carrying
        self._plane: DataPlane

    async def run(self, channel: socket.socket) -> None:
        await self._loop.create_unix_connection(lambda: self._channel, sock=channel)
        begin = await self._inbox.get()
        assert isinstance(begin, Begin)
        self._begin(begin)
        leaving: asyncio.Task[int] | None = None
        hurry = asyncio.Event()
        try:
            while True:
                message = await self._inbox.get()
                if message is None:
                    return
                if not isinstance(message, Leave):
                    await self._obey(message)
                elif leaving is None:
                    leaving = self._loop.create_task(drain(self._plane, hurry), name="drain")
                    leaving.add_done_callback(lambda _: self._inbox.put_nowait(None))
                else:
                    hurry.set()
        finally:
            await self._end()

    def _begin(self, begin: Begin) -> None:
        settings = begin.settings
        _, (descriptor,), _, _ = socket.recv_fds(self._sockets, 1, 1)
        memory = mmap(descriptor, Block.size(settings.workers, begin.slots))
        os.close(descriptor)
        block = Block(memoryview(memory), settings.workers, begin.slots)
        self._carrying = Carrying(block, begin.worker, self._tell)
        part = Part(begin.worker, self._carrying, self._bound.pop)
        self._plane = DataPlane(settings, Telemetry(), part=part)
        self._plane.client_room = raise_descriptor_limit()
        gc.freeze()
        self._report()
        self._look()

    async def _obey(self, message: FromParent) -> None:
        plane = self._plane
        match message:
            case Change():
                await self._change(message)
                self._channel.send(Done(message.number))
            case Rekey(key=key, keys=keys):
                plane.upstreams.rekey(key, Keys(*keys))
            case Placed(zone=zone, node=node):
                plane.upstreams.place(Place(zone=zone, node=node))
            case Stand(upstream=name, standings=standings):
                for upstream in plane.upstreams:
                    if upstream.name == name:
                        upstream.stand(standings)

    async def _change(self, message: Change) -> None:
        for at in range(0, len(message.addresses), SOCKETS):
            _, descriptors, _, _ = socket.recv_fds(self._sockets, 1, SOCKETS)
            for address, descriptor in zip(message.addresses[at : at + SOCKETS], descriptors, strict=True):
                self._bound[address] = socket.socket(fileno=descriptor)
        snapshots = []
        for state in message.states:
            for upstream, slots in state.slots.items():
                self._carrying.assign(upstream, slots)
            self._plane.upstreams.rekey(state.snapshot.key, Keys(*state.keys))
            snapshots.append(withdrawn(state.snapshot) if state.withdrawn else state.snapshot)
        if message.stopped:  # as the drain does, by a clock of its own
            await self._plane.stop_listening()
        await self._plane.change(snapshots, message.gone)
        while self._bound:  # what isn't listened on any more
            self._bound.popitem()[1].close()

    def _tell(self, upstream: str, identity: str, now: float, kind: Kind, seconds: float, good: int) -> None:
        if not self._outcomes:
            self._loop.call_later(HEARD, self._send_outcomes)
        self._outcomes.append((upstream, identity, now, kind.value, seconds, good))

    def _send_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        self._channel.send(Heard(tuple(outcomes)))

    def _report(self) -> None:
        self._count_clients()
        self._channel.send(report(self._plane))
        self._timers[:1] = [self._loop.call_later(REPORTED, self._report)]

    def _look(self) -> None:
        busy = False
        self._count_clients()
        for lane in self._plane.lanes:
            upstream = lane.upstream
            if lane.connections:
                busy = busy or upstream.snapshot.limits.max_requests_per_endpoint > 0
                for node in upstream.nodes:
                    if node.full:
                        node.crowded()
        self._timers[1:] = [self._loop.call_later(LOOK if busy else GLANCE, self._look)]

    def _count_clients(self) -> None:
        """Who has left is told to the other workers here; who comes, at once."""
        counts: dict[str, int] = {}
        for lane in self._plane.lanes:  # two of a name where an object is back while clients of the former one leave
            counts[lane.upstream.name] = counts.get(lane.upstream.name, 0) + lane.connections
        for name, connections in counts.items():
            self._carrying.clients(name, connections)

    async def _end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        await self._plane.stop_listening()
        self._plane.close()
        self._channel.send(report(self._plane))
        self._channel.close()


async def serve(channel: int, sockets: int) -> None:
    with socket.socket(fileno=sockets) as descriptors:
        await Worker(descriptors).run(socket.socket(fileno=channel))


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a terminal sends them to the whole group
        signal.signal(number, signal.SIG_IGN)
    configure_logging()
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
