"""What clients meet of a proxy, or of a port, that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from controller.model.snapshot import SnapshotBackend, SnapshotPort, SnapshotProxy
from controller.proxy.drain import drain
from tests.component.rig import LIMIT, OK, Rig, Wire, recv_head, send, stall, wait_for
from tests.component.test_proxy_command import free_port

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_a_leaving_proxy_says_close_in_its_own_answers_too(rig: Rig) -> None:
    await rig.open()
    await rig.apply(endpoints=(rig.endpoint(rig.backend, state="PARKED"),))
    client = await rig.connect()
    await client.send(GET)
    before = await client.response()

    rig.plane.announce()
    await client.send(GET)
    after = await client.response()

    assert [(each.status, each.get("connection")) for each in (before, after)] == [(503, None), (503, "close")]
    assert await client.to_end() == ("FIN", b"")


async def _forgotten(rig: Rig) -> None:
    await rig.plane.forget(("store", "shop"))


async def _renamed(rig: Rig) -> None:
    backend = SnapshotBackend(name="all", weight=1, weight_per="Endpoint", endpoints=(rig.endpoint(rig.backend),))
    port = SnapshotPort(name="other", port=81, listen=free_port(), backends=(backend,))
    await rig.plane.apply(rig.snapshot(ports=(port,)))


@pytest.mark.parametrize("change", [_forgotten, _renamed])
async def test_idle_clients_of_a_port_that_is_gone_are_closed_and_busy_ones_are_served(
    change: Callable[[Rig], Awaitable[None]], rig: Rig
) -> None:
    await rig.open()
    answer = asyncio.Event()
    rig.backend.script(recv_head(), send(OK), recv_head(), wait_for(answer), send(OK), stall())
    idle, busy, beginning = [await rig.connect() for _ in range(3)]
    await idle.send(GET)
    await idle.response()
    await busy.send(GET)
    await beginning.send(GET[:10])
    await rig.reached(lambda: rig.lane.upstream.nodes[0].inflight == 1 and rig.plane.memory.held == 10)
    gone = rig.lane

    await change(rig)

    assert await idle.to_end() == ("FIN", b"")
    assert {front.lane for front in rig.plane.fronts} == {gone}
    answer.set()
    response = await busy.response()
    assert (response.status, response.get("connection")) == (200, "close")
    await beginning.send(GET[10:])
    assert (await beginning.response()).get("connection") == "close"


async def amid_a_download(rig: Rig, rest: asyncio.Event) -> tuple[Wire, Wire]:
    """A client whose answer began before anything was known of an end, and an idle one."""
    await rig.open(proxy=SnapshotProxy(accept_grace=0, drain=4 * LIMIT))
    begun = send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
    rig.backend.script(recv_head(), begun, wait_for(rest), send(b"cd"), recv_head(), send(OK), stall())
    busy, idle = await rig.connect(), await rig.connect()
    await busy.send(GET)
    assert b"onnection" not in await busy.take_head()
    assert await busy.take(2) == b"ab"
    return busy, idle


async def test_a_download_that_ends_during_the_drain_ends_its_connection_and_the_drain(rig: Rig) -> None:
    rest = asyncio.Event()
    busy, idle = await amid_a_download(rig, rest)
    draining = asyncio.create_task(drain(rig.plane, asyncio.Event()))
    await idle.to_end()  # the listener has stopped

    rest.set()

    assert await busy.to_end() == ("FIN", b"cd")
    async with asyncio.timeout(LIMIT):
        assert await draining == 0


@pytest.mark.parametrize("change", [_forgotten, _renamed])
async def test_a_download_that_ends_when_its_port_is_gone_ends_its_connection(
    change: Callable[[Rig], Awaitable[None]], rig: Rig
) -> None:
    rest = asyncio.Event()
    busy, idle = await amid_a_download(rig, rest)
    await change(rig)
    await idle.to_end()

    rest.set()

    assert await busy.to_end() == ("FIN", b"cd")


async def test_a_request_that_waits_behind_a_download_is_served_during_the_drain(rig: Rig) -> None:
    rest = asyncio.Event()
    busy, idle = await amid_a_download(rig, rest)
    await busy.send(GET)
    await rig.reached(lambda: rig.plane.memory.held == len(GET))
    draining = asyncio.create_task(drain(rig.plane, asyncio.Event()))
    await idle.to_end()

    rest.set()

    assert await busy.take(2) == b"cd"
    response = await busy.response()
    assert (response.body, response.get("connection")) == (b"ok", "close")
    assert await draining == 0
