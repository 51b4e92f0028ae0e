"""`Fleet`: several workers as one proxy. The parent decides, the workers carry.

It takes a DataPlane's place: snapshots come in by `change`. The parent alone owns their source, active checks,
hostnames, ejection and the admin port, and makes the listening sockets: one per worker and address, so that the kernel
spreads connections, which pass to a dead worker's replacement with what is in their accept queues.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from mmap import mmap

from msgspec.structs import replace

from controller.balancing.locality import Place
from controller.model.snapshot import Snapshot
from controller.proxy import counting
from controller.proxy.block import Block, Slots
from controller.proxy.counting import Counted
from controller.proxy.drain import terms
from controller.proxy.hosting import Address, address_of
from controller.proxy.leading import LedUpstreams
from controller.proxy.listening import Listeners
from controller.proxy.messages import Begin, Change, FromWorker, Heard, Leave, Message, Report, Stand
from controller.proxy.owning import plan
from controller.proxy.seat import Seat
from controller.proxy.sharing import CLIENTS
from controller.proxy.subordinate import Subordinate
from controller.proxy.upstream import Upstream
from controller.proxy.upstreams import Key
from controller.settings import ProxySettings
from controller.telemetry import Gauges, Telemetry

log = logging.getLogger(__name__)

SLOTS = 32768  # endpoints that are counted for the whole pod; memory is used only for those that exist
BEGIN = 60.0  # seconds that a worker may take to begin
ANSWER = 10.0  # seconds that a worker may take to put a change in force; one that hangs is replaced
PAUSE, LONGEST = 0.05, 10.0  # seconds before a dead worker's replacement: doubling
STEADY = 30.0  # seconds of life after which the next death counts as the first


class Fleet:
    """Made and used inside a running loop; `run` keeps the workers alive, as one long-lived task."""

    def __init__(self, settings: ProxySettings, telemetry: Telemetry) -> None:
        self.settings = replace(settings, identity=settings.identity or secrets.token_hex(8))
        self.telemetry = telemetry
        self.loop = asyncio.get_running_loop()
        self.snapshots: dict[Key, tuple[Snapshot, str, float]] = {}  # with version, and when it was applied
        self._memory = os.memfd_create("steelyard-counters")
        os.ftruncate(self._memory, Block.size(settings.workers, SLOTS))
        self.block = Block(memoryview(mmap(self._memory, Block.size(settings.workers, SLOTS))), settings.workers, SLOTS)
        self._slots = Slots(self.block)
        seat = Seat(identity=self.settings.identity, place=Place(node=settings.node, zone=settings.zone))
        self.upstreams = LedUpstreams(seat, self, self._slots)
        self.upstreams.on_ejected = lambda upstream, cause: telemetry.ejected(upstream.service, cause)
        self.upstreams.on_verdict = lambda upstream, healthy: telemetry.judged(upstream.service, healthy=healthy)
        self.workers: dict[int, Subordinate] = {}
        self._listeners = Listeners(settings.workers, settings.backlog)
        self._owners: Mapping[Address, Key] = {}
        self._number = 0  # of the latest change
        self._changing = asyncio.Lock()
        self._pushes: set[asyncio.Task[None]] = set()
        self._counted = Counted()
        self._closing = False
        telemetry.gauges = self.gauges

    # Snapshots.

    async def apply(self, snapshot: Snapshot) -> bool:
        return bool(await self.change((snapshot,)))

    async def forget(self, key: Key) -> None:
        await self.change((), (key,))

    async def change(self, snapshots: Sequence[Snapshot], gone: Collection[Key] = ()) -> Collection[Key]:
        async with self._changing:
            planned = plan(self._owners, self.snapshots, snapshots, gone, self.settings)
            if not (planned.snapshots or planned.gone):
                return ()
            fresh = self._listeners.listen(address for address, _, _ in planned.ports)
            unwanted = self._owners.keys() - planned.owners.keys()
            self._owners = planned.owners
            names = self._names((*planned.keys, *planned.gone))
            for key in planned.gone:
                self.upstreams.forget(key)
                self.snapshots.pop(key, None)
            for snapshot, version in planned.snapshots:
                self.upstreams.apply(snapshot)
                self.telemetry.config_applied += 1
                self.snapshots[snapshot.key] = (snapshot, version, time.time())
            for name in names - self._names(planned.keys):
                self._slots.retire(name, (), self._number + 1)
            await self._put(planned.keys, planned.gone, fresh)
            self._listeners.close(unwanted)
            return planned.keys

    def _names(self, keys: Iterable[Key]) -> set[str]:
        return {upstream.name for key in keys for upstream in self.upstreams.of(key)}

    async def _put(self, keys: Sequence[Key], gone: Sequence[Key] = (), fresh: Container[Address] = ()) -> None:
        """Send the objects' states to every worker, and wait until they are in force."""
        self._number += 1
        for key in keys:
            for upstream in self.upstreams.of(key):
                self._slots.take(upstream.name, CLIENTS)
                self._slots.retire(upstream.name, {CLIENTS, *(node.id for node in upstream.nodes)}, self._number)
        message = self._message(keys, fresh, gone)
        for worker in self._synced():
            self._send(worker, message)
        await self._done()

    def _message(self, keys: Sequence[Key], listened: Container[Address], gone: Sequence[Key] = ()) -> Change:
        """`listened`: the addresses whose listeners go with it."""
        ports = [(self.snapshots[key][0], port) for key in keys for port in self.snapshots[key][0].ports]
        addresses = dict.fromkeys(address_of(snapshot, port, self.settings) for snapshot, port in ports)
        return Change(
            self._number,
            tuple(map(self.upstreams.state, keys)),
            tuple(gone),
            tuple(address for address in addresses if address in listened),
            self._listeners.stopped,
        )

    def _send(self, worker: Subordinate, message: Change) -> None:
        if message.addresses:
            worker.send_listeners(self._listeners.of(worker.index, message.addresses))
        worker.send(message)

    async def _done(self) -> None:
        number = self._number
        for worker in self._synced():
            await worker.done(number, ANSWER)
        self._slots.settle(number)

    def _synced(self) -> list[Subordinate]:
        return [worker for worker in self.workers.values() if worker.synced]

    # What the parent learns and decides between snapshots.

    def push(self, key: Key) -> None:
        """The object's endpoints have changed without a snapshot: a hostname has other addresses."""

        async def push() -> None:
            async with self._changing:
                if key in self.snapshots:
                    await self._put((key,))

        task = self.loop.create_task(push(), name="push")
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)

    def broadcast(self, message: Message) -> None:
        for worker in self.workers.values():
            worker.send(message)

    def _hear(self, index: int, message: FromWorker) -> None:
        if isinstance(message, Report):
            self._counted.hear(index, message)
        elif isinstance(message, Heard):
            self.upstreams.hear(index, message)

    # The workers.

    async def run(self) -> None:
        """Keep every worker alive until the proxy leaves. One that dies is replaced, ever more slowly."""
        async with asyncio.TaskGroup() as tasks:
            for index in range(self.settings.workers):
                tasks.create_task(self._keep(index), name=f"worker {index}")

    async def _keep(self, index: int) -> None:
        pause = PAUSE
        while not self._closing:
            began = self.loop.time()
            worker = Subordinate(index, self._hear)
            try:
                await worker.start(Begin(self.settings, index, SLOTS), self._memory)
                status = await self._live(worker)
            except OSError as error:  # no descriptor, process or memory is left: the others serve on
                self.telemetry.worker_failures += 1
                if self._synced():
                    self._listeners.rest(index)
                log.error("worker can't begin", extra={"worker": index, "error": str(error), "pause": pause})
            else:
                if self._closing:
                    return
                if self.loop.time() - began >= STEADY:
                    pause = PAUSE
                self.telemetry.worker_restarts += 1
                about = {"worker": index, "status": status, "pause": pause}
                log.error("worker died, another one takes its place", extra=about)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST)

    async def _live(self, worker: Subordinate) -> int:
        """A worker's life from its start; its exit status."""
        self.workers[worker.index] = worker
        if self._closing:  # since it was started
            worker.send(Leave())
        try:
            self._listeners.resume(worker.index)
            await self._sync(worker)
            return await worker.wait()
        finally:
            worker.kill()
            self._bury(worker.index)

    async def _sync(self, worker: Subordinate) -> None:
        """Bring a new worker to the state in force."""
        await worker.up(BEGIN)
        async with self._changing:
            worker.send(self.upstreams.placed)
            for key in self.snapshots:
                if self._closing:  # it is told to leave, and the listeners may be closed
                    return
                self._send(worker, self._message((key,), self._listeners))
                for upstream in self.upstreams.of(key):
                    worker.send(Stand(upstream.name, upstream.standings()))
                await worker.done(self._number, ANSWER)
            worker.synced = not worker.gone
        log.info("worker serves", extra={"worker": worker.index, "pid": worker.pid})

    def _bury(self, index: int) -> None:
        """What the dead worker carried is over, and what it counted stays."""
        del self.workers[index]
        self.block.bury(index)
        self._counted.bury(index)

    # What is known.

    @property
    def ready(self) -> bool:
        """Has a configuration and a worker that serves it, and isn't leaving."""
        return bool(self.snapshots) and bool(self._synced()) and not self._closing

    def gauges(self) -> Mapping[str, Gauges]:
        whole = self._counted.whole
        counting.show(whole, self.telemetry)
        return counting.gauges(whole, self.upstreams, self.snapshots)

    def idle(self) -> Iterator[tuple[Upstream, Mapping[str, int]]]:
        """Each upstream with its idle connections, by endpoint."""
        idle = self._counted.whole.idle
        for upstream in self.upstreams:
            yield upstream, idle.get(upstream.name, {})

    # The end.

    async def drain(self, hurry: asyncio.Event) -> int:
        """Let every worker drain, all at once; `hurry` ends the waiting. Returns how many connections were cut."""
        self._closing = True
        grace, patience = terms(snapshot for snapshot, _, _ in self.snapshots.values())
        cut = self._counted.whole.drain_cut
        log.info("draining", extra={"accept_grace": grace, "drain": patience, "workers": len(self.workers)})
        self.broadcast(Leave())
        hurrying = self.loop.create_task(self._hurry(hurry), name="hurry")
        # The workers' own copies close at the same time: closing the last one resets what is in its accept queue.
        closing = self.loop.call_later(grace, self._listeners.stop)
        try:
            async with asyncio.timeout(grace + patience + 2 * self.settings.flush):
                while self.workers:
                    await next(iter(self.workers.values())).wait()
                    await asyncio.sleep(0)
        except TimeoutError:
            log.error("workers outlast the drain", extra={"workers": len(self.workers)})
        finally:
            closing.cancel()
            hurrying.cancel()
        cut = self._counted.whole.drain_cut - cut
        log.info("drained", extra={"cut": cut})
        return cut

    async def _hurry(self, hurry: asyncio.Event) -> None:
        await hurry.wait()
        self.broadcast(Leave())

    async def stop_listening(self) -> None:
        self._listeners.stop()

    def close(self) -> None:
        """Release what is left."""
        for worker in self.workers.values():
            worker.kill()
        for push in self._pushes:
            push.cancel()
        self.upstreams.close()
        os.close(self._memory)

    def __repr__(self) -> str:
        return f"<Fleet services={len(self.snapshots)} workers={len(self._synced())}/{self.settings.workers}>"
