"""Several workers as one proxy: real processes, real sockets, deaths by SIGKILL."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from controller.balancing.node import Node
from controller.model.service import Affinity, Algorithm, Cookie, Health, Limits, PassiveHealth, Retries
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort, SnapshotProxy
from controller.proxy.fleet import Fleet
from controller.proxy.hosting import PortInUse
from controller.proxy.listening import Listeners
from controller.proxy.sharing import OTHERS_AGE, SharedNode
from controller.proxy.upstream import COALESCED
from controller.settings import ProxySettings
from controller.telemetry import Telemetry
from tests.component.rig import OK, SETTINGS, Backend, Rig, RigPolicy, Wire, fin, recv_head, send, serve
from tests.component.test_proxy_command import FILE, LIMIT, Proxy, Server, backends, fetch, free_port, start, until

__all__ = ["backends", "start"]  # fixtures

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
FAILED = b"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
SLOW = 30.0  # seconds: a process on a busy machine takes its time to begin


class Pod:
    """A fleet in this process, its workers real; backends and clients are the rig's."""

    def __init__(self) -> None:
        self.backends: list[Backend] = []
        self.clients: list[Wire] = []
        self.go = asyncio.Event()  # lets answers go that a test holds back

    async def open(self, count: int = 1, workers: int = 2, settings: ProxySettings = SETTINGS, **fields: Any) -> None:
        for number in range(count):
            backend = Backend(f"b{number}")
            await backend.start()
            self.backends.append(backend)
        self.fleet = Fleet(replace(settings, workers=workers), Telemetry())
        self.running = asyncio.create_task(self.fleet.run(), name="workers")
        await self.apply(**fields)
        await self.serving(workers)

    async def serving(self, workers: int = 2) -> None:
        await reached(lambda: sum(worker.synced for worker in self.fleet.workers.values()) == workers)

    async def apply(self, listed: list[Backend] | None = None, **fields: Any) -> None:
        backends = self.backends if listed is None else listed
        endpoints = tuple(Rig.endpoint(self, backend) for backend in backends)  # type: ignore[arg-type]  # no state
        backend = SnapshotBackend(name="all", weight=1, weight_per="Endpoint", endpoints=endpoints)
        port = SnapshotPort(name="http", port=80, listen=0, backends=(backend,))
        await self.fleet.apply(Snapshot(namespace="store", name="shop", ports=(port,), **fields))

    @property
    def port(self) -> int:
        (listener,) = self.fleet._listeners.of(0, tuple(self.fleet._listeners))
        return int(listener.getsockname()[1])

    def node(self, backend: Backend) -> Node:
        (upstream,) = self.fleet.upstreams.of(("store", "shop"))
        node = upstream.find(backend.name)
        assert node is not None
        return node

    def row(self, worker: int) -> int:
        """What one worker has in flight."""
        (upstream,) = self.fleet.upstreams.of(("store", "shop"))
        nodes = (node for node in upstream.nodes if isinstance(node, SharedNode))
        return sum(self.fleet.block.inflight[worker][node.slot] for node in nodes)

    @property
    def in_flight(self) -> int:
        return sum(self.row(worker) for worker in range(self.fleet.settings.workers))

    @property
    def connected(self) -> int:
        return sum(gauges.clients for gauges in self.fleet.gauges().values())

    async def connect(self) -> Wire:
        _, wire = await asyncio.get_running_loop().create_connection(Wire, "127.0.0.1", self.port)
        self.clients.append(wire)
        return wire

    async def ask(self) -> int:
        client = await self.connect()
        await client.send(GET)
        status = (await client.response()).status
        client.fin()
        return status

    async def held(self, count: int, request: bytes = GET) -> list[Wire]:
        """So many requests that wait for `go`, on a connection each."""

        async def hold(_: Wire) -> None:
            await self.go.wait()

        for backend in self.backends:
            backend.script(recv_head(), hold, send(OK), serve(OK))
        clients = [await self.connect() for _ in range(count)]
        for client in clients:
            await client.send(request)
        return clients

    def requests(self, outcome: str = "2xx") -> int:
        self.fleet.gauges()
        return sum(counts.outcomes.get(outcome, 0) for counts in self.fleet.telemetry.by_backend.values())

    async def close(self) -> None:
        for client in self.clients:
            if not client.closed:
                client.transport.abort()
        await self.fleet.stop_listening()
        self.fleet._closing = True
        workers = list(self.fleet.workers.values())
        for worker in workers:
            worker.kill()
        await self.running
        self.fleet.close()
        for backend in self.backends:
            await backend.close()


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return RigPolicy()


@pytest.fixture
async def pod() -> AsyncIterator[Pod]:
    pod = Pod()
    yield pod
    await pod.close()


async def reached(state: Callable[[], bool], limit: float = SLOW) -> None:
    """Until another process is in a state that it tells by no event."""
    async with asyncio.timeout(limit):
        while not state():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.002)


# Deaths.


async def test_connections_in_the_accept_queue_of_a_killed_worker_are_answered(pod: Pod) -> None:
    await pod.open()
    stopped = pod.fleet.workers[0]
    os.kill(stopped.pid, signal.SIGSTOP)

    asking = [asyncio.create_task(pod.ask()) for _ in range(40)]
    await reached(lambda: len(pod.backends[0].connections) > 0)
    os.kill(stopped.pid, signal.SIGKILL)

    assert await asyncio.gather(*asking) == [200] * 40
    assert pod.fleet.telemetry.worker_restarts == 1


async def test_a_killed_worker_costs_the_requests_that_it_had_read_and_no_other(pod: Pod) -> None:
    await pod.open()
    clients = await pod.held(24)
    await reached(lambda: pod.in_flight == 24)
    lost = pod.row(0)
    assert 0 < lost < 24

    pod.fleet.workers[0].kill()
    await reached(lambda: pod.in_flight == 24 - lost)
    pod.go.set()
    for client in clients:
        await client.until(lambda client=client: bool(client.received) or client.ending != "open")

    assert sum(bytes(client.received).startswith(b"HTTP/1.1 200") for client in clients) == 24 - lost
    await pod.serving()
    await reached(lambda: pod.in_flight == 0)
    assert await pod.ask() == 200


async def test_counters_never_fall_and_keep_what_a_dead_worker_counted(pod: Pod) -> None:
    await pod.open()
    for _ in range(20):
        assert await pod.ask() == 200
    await reached(lambda: pod.requests() == 20)
    seen = [20]

    pod.fleet.workers[0].kill()
    pod.fleet.workers[1].kill()
    await reached(lambda: seen.append(pod.requests()) is None and pod.fleet.telemetry.worker_restarts == 2)
    await pod.serving()
    for _ in range(5):
        assert await pod.ask() == 200
    await reached(lambda: seen.append(pod.requests()) is None and seen[-1] == 25)

    assert seen == sorted(seen)


def test_a_listener_at_rest_leaves_its_connections_to_the_others_until_it_is_resumed() -> None:
    listeners = Listeners(workers=2, backlog=16)
    listeners.rest(1)
    address = ("127.0.0.1", 0)
    listeners.listen([address])
    (one,), (two,) = (listeners.of(worker, [address]) for worker in range(2))

    def accepted(by: socket.socket) -> int:
        """Of 20 connections."""
        count, clients = 0, []
        for _ in range(20):
            client = socket.create_connection(one.getsockname(), timeout=LIMIT)
            clients.append(client)
            try:
                sock, _ = by.accept()
                sock.close()
                count += 1
            except BlockingIOError:
                continue
        for client in clients:
            client.close()
        return count

    assert accepted(one) == 20
    listeners.resume(1)
    listeners.rest(0)
    assert accepted(two) == 20
    listeners.resume(0)
    assert 0 < accepted(one) < 20
    listeners.stop()


async def test_a_worker_that_hangs_is_replaced(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.proxy.fleet.ANSWER", 0.2)
    await pod.open()
    hanging = pod.fleet.workers[0]
    os.kill(hanging.pid, signal.SIGSTOP)

    await pod.apply(retries=Retries(attempts=3))

    await reached(lambda: pod.fleet.workers.get(0) not in (None, hanging))
    await pod.serving()


# Balance.


@pytest.mark.parametrize("algorithm", ["LeastConnections", "PowerOfTwoChoices"])
async def test_workers_see_each_others_load(algorithm: Any, pod: Pod) -> None:
    await pod.open(count=4, algorithm=Algorithm(type=algorithm))

    for number in range(20):
        await pod.held(1)
        await reached(lambda number=number: pod.in_flight == number + 1)
        await asyncio.sleep(1.2 * OTHERS_AGE)  # the age that a scan's sums may have

    assert [pod.node(backend).load() for backend in pod.backends] == [5, 5, 5, 5]
    assert all(pod.row(worker) for worker in range(2))


async def test_a_limit_is_exceeded_by_one_less_than_the_workers_and_all_are_served_in_the_end(pod: Pod) -> None:
    await pod.open(limits=Limits(max_requests_per_endpoint=4))

    clients = await pod.held(20)
    await reached(lambda: pod.in_flight >= 4)
    await asyncio.sleep(0.1)  # several looks of each worker's queue

    assert 4 <= len(pod.backends[0].connections) <= 5
    pod.go.set()
    assert [(await client.response()).status for client in clients] == [200] * 20


async def test_requests_that_a_cookie_binds_keep_to_the_pods_limit_of_their_endpoint(pod: Pod) -> None:
    await pod.open(
        workers=3, limits=Limits(max_requests_per_endpoint=4), affinity=Affinity(cookie=Cookie(name="bound"))
    )
    client = await pod.connect()
    await client.send(GET)
    cookie = (await client.response()).get("set-cookie")
    assert cookie is not None
    client.fin()

    clients = await pod.held(24, GET[:-2] + f"Cookie: {cookie.partition(';')[0]}\r\n\r\n".encode())
    await reached(lambda: pod.in_flight >= 4)
    await asyncio.sleep(0.1)  # several looks of each worker's queue

    assert 4 <= pod.in_flight <= 6  # each worker but one may take one more before it sees the others'
    pod.go.set()
    assert [(await client.response()).status for client in clients] == [200] * 24


async def test_max_connections_is_the_pods(pod: Pod) -> None:
    await pod.open(limits=Limits(max_connections=6))
    clients = await pod.held(6)
    await reached(lambda: pod.connected == 6)  # told, so that the 0 below is of later

    refused = [await pod.ask() for _ in range(8)]

    assert refused == [503] * 8
    pod.go.set()
    for client in clients:
        await client.response()
        client.fin()
    await reached(lambda: pod.connected == 0)
    assert await pod.ask() == 200


async def test_refused_connections_that_linger_take_no_place_in_any_worker(pod: Pod) -> None:
    await pod.open(settings=replace(SETTINGS, lingering=2 * SLOW), limits=Limits(max_connections=2))
    clients = await pod.held(2)
    await reached(lambda: pod.connected == 2)
    refused = [await pod.connect() for _ in range(8)]
    for client in refused:
        await client.send(GET)
    assert [(await client.response()).status for client in refused] == [503] * 8
    pod.go.set()

    for client in clients:
        await client.response()
        client.fin()
    await reached(lambda: pod.connected == 0)  # sooner than they are given up

    assert await pod.ask() == 200


async def test_the_slots_of_an_object_that_is_gone_are_free_when_its_last_client_has_left(pod: Pod) -> None:
    await pod.open()
    clients = await pod.held(4)
    await reached(lambda: pod.in_flight == 4)
    await pod.fleet.forget(("store", "shop"))
    pod.go.set()
    for client in clients:
        assert (await client.response()).status == 200
        await client.to_end()

    async with asyncio.timeout(SLOW):
        while pod.fleet._slots._retired:  # looked at with every change
            await pod.fleet.forget(("store", "another"))


async def test_a_hostnames_answer_reaches_every_worker(pod: Pod) -> None:
    await pod.open()
    backend = SnapshotBackend(
        name="all", weight=1, weight_per="Endpoint", hostname="shop.test", port=pod.backends[0].port
    )
    port = SnapshotPort(name="http", port=80, listen=0, backends=(backend,))
    await pod.fleet.apply(Snapshot(namespace="store", name="shop", ports=(port,)))
    assert {await pod.ask() for _ in range(10)} == {503}

    pod.fleet.upstreams.resolved("shop.test", ["127.0.0.1"])
    await reached(lambda: not pod.fleet._pushes)
    await asyncio.sleep(1.2 * COALESCED)  # what additions may wait for

    assert {await pod.ask() for _ in range(20)} == {200}


async def test_a_cookie_of_one_worker_binds_in_all(pod: Pod) -> None:
    await pod.open(count=4, affinity=Affinity(cookie=Cookie(name="bound")))
    client = await pod.connect()
    await client.send(GET)
    cookie = (await client.response()).get("set-cookie")
    assert cookie is not None
    (bound,) = (backend for backend in pod.backends if backend.connections)
    asked = len(bound.connections)

    for _ in range(20):
        client = await pod.connect()
        await client.send(GET[:-2] + f"Cookie: {cookie.partition(';')[0]}\r\n\r\n".encode())
        assert (await client.response()).get("set-cookie") is None

    assert asked
    assert [backend for backend in pod.backends if backend.connections] == [bound]


async def test_an_ejection_holds_in_every_worker(pod: Pod) -> None:
    await pod.open(count=2, algorithm=Algorithm(type="RoundRobin"), health=Health(panic_percent=0))
    bad, good = pod.backends
    bad.script(recv_head(), send(FAILED), fin())

    await reached_asking(pod, lambda: pod.node(bad).ejected_until is not None)
    await pod.apply(
        algorithm=Algorithm(type="RoundRobin"),
        health=Health(panic_percent=0),
        retries=Retries(attempts=2),  # a change that every worker has confirmed is behind the ejection
    )

    assert [await pod.ask() for _ in range(40)] == [200] * 40
    assert pod.node(good).ejected_until is None


async def reached_asking(pod: Pod, state: Callable[[], bool]) -> None:
    async with asyncio.timeout(SLOW):
        while not state():
            await pod.ask()


async def test_a_proof_in_one_worker_brings_an_endpoint_back_in_all(pod: Pod) -> None:
    terms = Health(panic_percent=0, passive=PassiveHealth(ejection=0.3))
    await pod.open(count=2, algorithm=Algorithm(type="RoundRobin"), health=terms)
    bad = pod.backends[0]
    bad.script(recv_head(), send(FAILED), fin())
    await reached_asking(pod, lambda: pod.node(bad).ejected_until is not None)

    bad.script(serve(OK))

    await reached_asking(pod, lambda: pod.node(bad).ejected_until is None)


async def test_old_streams_in_several_workers_keep_no_endpoint_from_its_proof(pod: Pod) -> None:
    terms = Health(panic_percent=0, passive=PassiveHealth(ejection=0.3))
    await pod.open(count=2, algorithm=Algorithm(type="RoundRobin"), health=terms)
    await pod.held(24)
    await reached(lambda: pod.in_flight == 24)
    assert all(pod.row(worker) for worker in range(2))
    bad, good = pod.backends
    good.script(serve(OK))
    bad.script(recv_head(), send(FAILED), fin())
    await reached_asking(pod, lambda: pod.node(bad).ejected_until is not None)

    bad.script(serve(OK))

    await reached_asking(pod, lambda: pod.node(bad).ejected_until is None)


# Changes.


async def test_a_change_reaches_every_worker_without_a_failed_request(pod: Pod) -> None:
    await pod.open(count=2)
    one, two = pod.backends
    statuses: list[int] = []
    ended = False

    async def keep_asking() -> None:
        while not ended:
            statuses.append(await pod.ask())

    asking = [asyncio.create_task(keep_asking()) for _ in range(4)]
    for listed in ([one], [two], [one], [two]):
        await pod.apply(listed)
    ended = True
    await asyncio.gather(*asking)
    before = len(one.connections)
    after = [await pod.ask() for _ in range(20)]

    assert set(statuses + after) == {200}
    assert len(one.connections) == before


async def test_two_proxies_cannot_share_a_port_by_accident(pod: Pod) -> None:
    await pod.open()
    other = Fleet(replace(SETTINGS, workers=2), Telemetry())
    port = SnapshotPort(name="http", port=80, listen=pod.port, backends=())

    with pytest.raises(PortInUse, match="can't be taken"):
        await other.apply(Snapshot(namespace="store", name="other", ports=(port,)))

    other.close()


async def test_a_lone_worker_is_this_process_and_its_nodes_share_nothing(rig: Rig) -> None:
    await rig.open()

    assert {type(node) for node in rig.lane.upstream.nodes} == {Node}
    assert not issubclass(Node, SharedNode)


# The way out.


async def test_a_drain_ends_what_is_in_flight_in_every_worker(pod: Pod) -> None:
    await pod.open(proxy=SnapshotProxy(accept_grace=0.1, drain=20))
    clients = await pod.held(12)
    await reached(lambda: pod.in_flight == 12)
    workers = list(pod.fleet.workers.values())

    leaving = asyncio.create_task(pod.fleet.drain(asyncio.Event()))
    await reached(lambda: not pod.fleet._listeners)
    pod.go.set()

    assert [(await client.response()).status for client in clients] == [200] * 12
    assert await leaving == 0
    assert [await worker.wait() for worker in workers] == [0, 0]


async def test_a_worker_that_begins_while_the_pod_leaves_ends_with_it(pod: Pod) -> None:
    await pod.open(proxy=SnapshotProxy(accept_grace=0.0, drain=1.0))
    pod.fleet.workers[0].kill()
    await reached(lambda: pod.fleet.telemetry.worker_restarts == 1)
    await reached(lambda: 0 in pod.fleet.workers)  # it is begun, and has nothing yet

    await pod.fleet.drain(asyncio.Event())
    await pod.running


async def test_what_outlasts_the_drain_is_cut_and_counted(pod: Pod) -> None:
    await pod.open(proxy=SnapshotProxy(accept_grace=0, drain=0.1))
    await pod.held(6)
    await reached(lambda: pod.in_flight == 6)

    assert await pod.fleet.drain(asyncio.Event()) == 6


async def test_a_second_signal_ends_the_drain_in_every_worker(pod: Pod) -> None:
    await pod.open(proxy=SnapshotProxy(accept_grace=0, drain=3600))
    await pod.held(6)
    await reached(lambda: pod.in_flight == 6)
    hurry = asyncio.Event()

    leaving = asyncio.create_task(pod.fleet.drain(hurry))
    await reached(lambda: not pod.fleet._listeners)
    hurry.set()

    assert await leaving == 6


# The command.


def children(pid: int) -> list[int]:
    text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(word) for word in text.split()]


def test_the_command_runs_workers_under_one_admin_port_and_leaves_cleanly(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]
) -> None:
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=port, backend=backends[0].server_port))
    proxy = start(path, "--workers", "2")
    until(lambda: proxy.log.read_text().count("worker serves") == 2)
    url = f"http://127.0.0.1:{port}/"

    assert [fetch(url) for _ in range(20)] == [(200, "one")] * 20
    until(lambda: proxy.metric("steelyard_requests_total") == 20)
    os.kill(children(proxy.process.pid)[0], signal.SIGKILL)
    until(lambda: proxy.metric("steelyard_worker_restarts_total") == 1)
    until(lambda: proxy.log.read_text().count("worker serves") == 3)  # a busy machine may take longer than a client
    assert [fetch(url) for _ in range(20)] == [(200, "one")] * 20
    until(lambda: proxy.metric("steelyard_requests_total") == 40)
    path.write_text(FILE.format(port=port, backend=backends[1].server_port))
    until(lambda: fetch(url) == (200, "two"))
    workers = children(proxy.process.pid)

    assert proxy.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_a_worker_that_cannot_be_replaced_yet_costs_the_others_nothing(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]
) -> None:
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=port, backend=backends[0].server_port))
    proxy = start(path, "--workers", "2")
    until(lambda: proxy.log.read_text().count("worker serves") == 2)
    url, parent = f"http://127.0.0.1:{port}/", proxy.process.pid
    _, hard = resource.prlimit(parent, resource.RLIMIT_NOFILE)
    resource.prlimit(parent, resource.RLIMIT_NOFILE, (3, hard))  # all that it has stays open, and no more is opened

    os.kill(children(parent)[0], signal.SIGKILL)
    until(lambda: proxy.log.read_text().count("worker can't begin") >= 3)
    assert [fetch(url) for _ in range(40)] == [(200, "one")] * 40
    resource.prlimit(parent, resource.RLIMIT_NOFILE, (hard, hard))
    until(lambda: proxy.log.read_text().count("worker serves") == 3)

    assert proxy.metric("steelyard_worker_failures_total") >= 3
    assert proxy.metric("steelyard_worker_restarts_total") == 1
    assert [fetch(url) for _ in range(40)] == [(200, "one")] * 40
    assert proxy.stop() == 0


def test_workers_end_when_their_parent_is_killed(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(port=free_port(), backend=backends[0].server_port))
    proxy = start(path, "--workers", "2")
    workers = children(proxy.process.pid)

    proxy.process.kill()
    proxy.process.wait()

    end = time.monotonic() + LIMIT
    while any(Path(f"/proc/{pid}").exists() and alive(pid) for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
