"""Expect and 1xx, upgrades as tunnels, endpoints that go away, and the proxy's own drain."""

from __future__ import annotations

import asyncio

import pytest

from controller.balancing.node import Kind
from controller.model.service import Algorithm, Timeouts
from controller.model.snapshot import SnapshotProxy
from controller.proxy.drain import drain
from tests.component.rig import (
    OK,
    Rig,
    half_close,
    recv,
    recv_head,
    rst,
    send,
    serve,
    stall,
    wait_for,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
EXPECT = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
UPGRADE = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, UPGRADE\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


# Expect and 1xx.


async def test_the_endpoints_100_is_relayed_and_the_body_follows(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(CONTINUE), recv(2), send(OK), stall())
    client = await rig.connect()

    await client.send(EXPECT)
    assert (await client.response()).status == 100
    await client.send(b"hi")

    assert (await client.response()).status == 200
    assert b"xpect: 100-continue" in rig.backend.connections[0].received


async def test_a_100_that_does_not_come_is_ours_and_a_late_one_is_swallowed(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), recv(2), send(CONTINUE + OK), stall())
    client = await rig.connect()

    await client.send(EXPECT)
    assert (await client.response()).status == 100
    await client.send(b"hi")

    assert (await client.response()).status == 200


async def test_a_final_answer_instead_of_the_100_closes(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"), stall())
    client = await rig.connect()

    await client.send(EXPECT)
    response = await client.response()

    assert (response.status, response.get("connection")) == (417, "close")
    await client.send(b"hi")
    assert (await client.to_end())[0] == "FIN"


async def test_another_expectation_cannot_be_met(rig: Rig) -> None:
    await rig.open()

    assert (await rig.ask(GET[:-2] + b"Expect: tea\r\n\r\n")).status == 417


@pytest.mark.parametrize(("version", "seen"), [("1.1", [103, 103, 200]), ("1.0", [200])])
async def test_early_hints_reach_new_clients_in_order_and_old_ones_never(
    version: str, seen: list[int], rig: Rig
) -> None:
    await rig.open()
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
    rig.backend.script(recv_head(), send(hint + hint + OK), stall())
    client = await rig.connect()

    await client.send(b"GET / HTTP/%s\r\nHost: a\r\n\r\n" % version.encode())

    assert [(await client.response()).status for _ in seen] == seen


async def test_endless_1xx_answers_are_a_bad_gateway(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(b"HTTP/1.1 102 Processing\r\n\r\n" * 40), stall())
    client = await rig.connect()

    await client.send(GET)
    statuses = [(await client.response()).status for _ in range(33)]

    assert statuses == [102] * 32 + [502]


# Upgrades.


async def test_an_upgrade_becomes_a_tunnel_with_early_bytes_first(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(SWITCH + b"server first"), recv(5), send(b"pong"), stall())
    client = await rig.connect()

    await client.send(UPGRADE)
    assert (await client.response()).status == 101
    assert await client.take(12) == b"server first"
    await client.send(b"ping!")
    assert await client.take(4) == b"pong"

    assert rig.lane.upstream.nodes[0].inflight == 1
    head = bytes(rig.backend.connections[0].received)
    assert b"pgrade: websocket\r\n" in head
    client.rst()
    await rig.settled()
    assert rig.learnt == [Kind.OK]


async def test_bytes_that_came_before_the_101_go_first(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(SWITCH), recv(5), send(b"pong"), stall())
    client = await rig.connect()

    await client.send(UPGRADE + b"early")
    assert (await client.response()).status == 101

    assert await client.take(4) == b"pong"
    assert bytes(rig.backend.connections[0].received).endswith(b"early")


async def test_a_refused_upgrade_is_a_normal_answer(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"), serve(OK))
    client = await rig.connect()

    await client.send(UPGRADE)
    assert (await client.response()).status == 403
    await client.send(GET)

    assert (await client.response()).status == 200


async def test_a_101_that_nobody_asked_for_is_a_bad_gateway(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(SWITCH), stall())

    assert (await rig.ask()).status == 502


async def test_a_half_close_passes_through_a_tunnel(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(SWITCH), stall(), send(b"after your FIN"), half_close())
    client = await rig.connect()
    await client.send(UPGRADE)
    await client.response()

    client.half_close()

    assert await client.to_end() == ("FIN", b"after your FIN")
    await rig.settled()


@pytest.mark.parametrize("side", ["client", "backend"])
async def test_a_reset_passes_through_a_tunnel(side: str, rig: Rig) -> None:
    await rig.open()
    go = asyncio.Event()
    rig.backend.script(recv_head(), send(SWITCH), *((wait_for(go), rst()) if side == "backend" else (stall(),)))
    client = await rig.connect()
    await client.send(UPGRADE)
    await client.response()

    if side == "client":
        client.rst()
        other = rig.backend.connections[0]
    else:
        go.set()
        other = client
    await other.until(lambda: other.ending != "open")

    assert other.ending == "RST"


async def test_a_silent_tunnel_is_closed(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(idle=0.1, request=0.05))
    rig.backend.script(recv_head(), send(SWITCH), stall())
    client = await rig.connect()
    await client.send(UPGRADE)
    await client.response()

    assert (await client.to_end())[0] == "FIN"
    await rig.settled()


# Endpoints that go away.


async def test_work_on_an_endpoint_that_is_gone_has_its_drain_and_is_then_cut(rig: Rig) -> None:
    await rig.open(backends=2, proxy=SnapshotProxy(drain=0.1))
    for backend in rig.backends:
        backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), stall())
    client = await rig.connect()
    await client.send(GET)
    await client.take_head()
    used, other = sorted(rig.backends, key=lambda backend: -len(backend.connections))

    await rig.apply(endpoints=(rig.endpoint(other),))

    assert await client.to_end() == ("FIN", b"abc")
    assert rig.outcomes == {"drain_cut": 1}
    assert rig.telemetry.drain_cut == 1
    assert used.connections


async def test_work_on_an_endpoint_that_returns_is_not_cut(rig: Rig) -> None:
    await rig.open(backends=2, proxy=SnapshotProxy(drain=0.1))
    go = asyncio.Event()
    for backend in rig.backends:
        backend.script(recv_head(), wait_for(go), send(OK), stall())
    client = await rig.connect()
    await client.send(GET)
    await rig.reached(lambda: any(node.inflight for node in rig.lane.upstream.nodes))
    used, other = sorted(rig.backends, key=lambda backend: -len(backend.connections))
    if not used.connections:
        used, other = other, used

    await rig.apply(endpoints=(rig.endpoint(other),))
    await rig.apply(endpoints=(rig.endpoint(other), rig.endpoint(used)))
    await asyncio.sleep(0.2)
    go.set()

    assert (await client.response()).status == 200


async def test_idle_connections_to_an_endpoint_that_is_gone_close_at_once(rig: Rig) -> None:
    await rig.open(backends=2, algorithm=Algorithm(type="RoundRobin"))
    await rig.ask()
    await rig.ask()
    first, second = rig.backends
    wire = first.connections[0]

    await rig.apply(endpoints=(rig.endpoint(second),))
    await wire.until(lambda: wire.ending != "open")

    assert second.connections[0].ending == "open"


# The proxy's own drain.


async def test_a_leaving_proxy_finishes_what_is_in_flight_and_says_close(rig: Rig) -> None:
    await rig.open(proxy=SnapshotProxy(accept_grace=0.3, drain=5))
    go = asyncio.Event()
    rig.backend.scripts(
        (recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc"), wait_for(go), send(b"def"), stall()),
        (recv_head(), recv(6), send(OK), stall()),
        (serve(OK),),
    )
    downloading, uploading, idle = [await rig.connect() for _ in range(3)]
    await downloading.send(GET)
    await downloading.take_head()
    await uploading.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc")
    await rig.backend.connection(1)
    await idle.send(GET)
    await idle.response()

    leaving = asyncio.create_task(drain(rig.plane, asyncio.Event()))
    await rig.reached(lambda: not rig.plane.ready)
    late = await rig.ask()
    assert (late.status, late.get("connection")) == (200, "close")
    assert await idle.to_end() == ("FIN", b"")
    assert not rig.plane.addresses
    go.set()
    assert await downloading.take(6) == b"abcdef"
    await uploading.send(b"def")
    finished = await uploading.response()

    assert (finished.status, finished.get("connection")) == (200, "close")
    downloading.fin()
    assert await leaving == 0


async def test_what_outlasts_the_drain_is_cut_as_truncation(rig: Rig) -> None:
    await rig.open(proxy=SnapshotProxy(accept_grace=0, drain=0.1))
    rig.backend.scripts(
        (recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc"), stall()),
        (recv_head(), send(SWITCH), stall()),
    )
    downloading, tunnel = await rig.connect(), await rig.connect()
    await downloading.send(GET)
    await downloading.take_head()
    await tunnel.send(UPGRADE)
    await tunnel.response()

    assert await drain(rig.plane, asyncio.Event()) == 2

    assert await downloading.to_end() == ("FIN", b"abc")
    assert (await tunnel.to_end())[0] == "FIN"
