"""A configuration that comes while the proxy leaves: for what is in flight, and no longer for who comes."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from controller.model.endpoints import Endpoint
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort, SnapshotProxy
from controller.proxy.drain import drain
from controller.proxy.hosting import Host, bind
from controller.proxy.lane import Lane
from controller.proxy.messages import Leave
from tests.component.rig import OK, SETTINGS, Backend, Rig, RigPolicy, Wire, recv_head, rst, serve, signal, wait_for
from tests.component.test_proxy_command import free_port, refused
from tests.component.test_workers import Pod, pod, reached

__all__ = ["pod"]  # a fixture

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
TERMS = SnapshotProxy(accept_grace=0.05, drain=20)


@pytest.fixture
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    return RigPolicy() if {"rig", "pod"} & set(request.fixturenames) else asyncio.get_event_loop_policy()


def of(backend: Backend, *listens: int) -> Snapshot:
    """All goes to the one backend; `listens` are ports besides the first."""
    endpoint = Endpoint(id=backend.name, address="127.0.0.1", port=backend.port)
    listed = SnapshotBackend(name="all", weight=1, weight_per="Endpoint", endpoints=(endpoint,))
    ports = [SnapshotPort(name="http", port=80, listen=0, backends=(listed,))]
    ports += [SnapshotPort(name=f"p{each}", port=each, listen=each, backends=(listed,)) for each in listens]
    return Snapshot(namespace="store", name="shop", ports=tuple(ports), proxy=TERMS)


async def test_a_port_that_comes_in_the_drain_is_not_opened_and_what_is_in_flight_goes_to_living_endpoints(
    rig: Rig,
) -> None:
    await rig.open(backends=2)
    dying, living = rig.backends
    asked, go, port = asyncio.Event(), asyncio.Event(), free_port()
    dying.script(recv_head(), signal(asked), wait_for(go), rst())
    living.script(serve(OK))
    await rig.plane.apply(of(dying))
    client = await rig.connect()
    await client.send(GET)
    await asked.wait()
    leaving = asyncio.create_task(drain(rig.plane, asyncio.Event()))
    await rig.reached(lambda: not rig.plane.addresses)

    await rig.plane.apply(of(living, port))

    assert (dict(rig.plane.addresses), refused(port)) == ({}, True)
    go.set()
    response = await client.response()
    assert (response.status, response.get("connection")) == (200, "close")
    assert await leaving == 0


async def in_flight(pod: Pod, go: asyncio.Event) -> list[Wire]:
    """Eight requests at a backend that will die, of two."""
    await pod.open(count=2)
    dying, living = pod.backends
    dying.script(recv_head(), wait_for(go), rst())
    living.script(serve(OK))
    await pod.fleet.apply(of(dying))
    clients = [await pod.connect() for _ in range(8)]
    for client in clients:
        await client.send(GET)
    await reached(lambda: pod.in_flight == 8)
    return clients


async def test_workers_open_no_port_in_the_drain_and_their_requests_go_to_living_endpoints(pod: Pod) -> None:
    go, port = asyncio.Event(), free_port()
    clients = await in_flight(pod, go)
    workers = list(pod.fleet.workers.values())
    leaving = asyncio.create_task(pod.fleet.drain(asyncio.Event()))
    await reached(lambda: not pod.fleet._listeners)

    await pod.fleet.apply(of(pod.backends[1], port))

    assert refused(port)
    go.set()
    assert [(await client.response()).status for client in clients] == [200] * 8
    assert await leaving == 0
    assert [await worker.wait() for worker in workers] == [0, 0]


async def test_a_worker_that_has_stopped_listening_before_its_parent_keeps_no_listener(pod: Pod) -> None:
    go, port = asyncio.Event(), free_port()
    clients = await in_flight(pod, go)
    pod.fleet._closing = True
    pod.fleet.broadcast(Leave())
    await asyncio.sleep(10 * TERMS.accept_grace)  # their drain's; they tell nobody

    await pod.fleet.apply(of(pod.backends[1], port))
    await pod.fleet.stop_listening()

    assert refused(port)
    go.set()
    assert [(await client.response()).status for client in clients] == [200] * 8


async def test_a_proxy_that_stops_while_it_begins_to_listen_listens_on_nothing() -> None:
    host = Host(SETTINGS, bind)  # on a loop whose create_server takes a turn
    addresses = [("127.0.0.1", free_port()) for _ in range(3)]
    lane = cast(Lane, None)  # nobody comes
    host.reserve(addresses)

    serving = asyncio.get_running_loop().create_task(host.serve(dict.fromkeys(addresses, lane), ()))
    await asyncio.sleep(0)
    await host.stop()
    await serving

    assert host.addresses == {}
    assert all(refused(port) for _, port in addresses)
