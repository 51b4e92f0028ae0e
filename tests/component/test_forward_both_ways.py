"""Answers that begin while the request's body is on its way: bytes move both ways, and `idle` is between any two."""

from __future__ import annotations

import asyncio
import socket
from time import monotonic

from msgspec.structs import replace

from controller.balancing.node import Kind
from controller.model.service import Timeouts
from tests.component.rig import (
    LIMIT,
    SETTINGS,
    Rig,
    Wire,
    recv_head,
    send,
    stall,
    stop_reading,
)

LONG = 4 * LIMIT  # seconds: what must not end the test
NEVER = Timeouts(connect=LONG, request_headers=LONG, response=LONG, idle=LONG)
STILL = replace(SETTINGS, coarse_tick=LONG)
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n"
BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"


def turn(rig: Rig, now: float) -> None:
    """The tick, at a time of the test's choosing: with `STILL` no other comes, however slow the machine is."""
    for front in tuple(rig.plane.fronts):
        if front.deadline <= now:
            front.expire(now)


async def begun(rig: Rig) -> tuple[Wire, Wire]:
    """A client in its upload, whose answer has begun, and the endpoint."""
    rig.backend.script(recv_head(), send(BEGUN + b"a"), stall())
    client = await rig.connect()
    await client.send(POST + b"abc")
    await client.take_to(b"\r\n\r\na")
    return client, rig.backend.connections[0]


async def test_an_upload_that_moves_is_not_idle_though_its_answer_has_begun(rig: Rig) -> None:
    await rig.open(STILL, timeouts=replace(NEVER, idle=20.0))
    client, upstream = await begun(rig)
    (front,) = rig.plane.fronts
    before = front.deadline

    await client.send(b"def")
    await upstream.until(lambda: upstream.received.endswith(b"def"))
    turn(rig, before)

    assert (client.ending, upstream.ending) == ("open", "open")
    assert before < front.deadline <= monotonic() + 20.0


async def test_a_client_that_stops_in_its_upload_is_not_held_against_an_endpoint_that_has_begun_its_answer(
    rig: Rig,
) -> None:
    await rig.open(STILL, timeouts=replace(NEVER, idle=20.0))
    client, upstream = await begun(rig)
    (front,) = rig.plane.fronts

    turn(rig, front.deadline)

    assert await client.to_end() == ("FIN", b"")
    assert (await upstream.to_end())[0] == "RST"
    assert rig.outcomes == {"request_timeout": 1}
    assert rig.learnt == [Kind.OK]


async def test_an_endpoint_that_stops_reading_behind_the_head_of_its_answer_is_given_up(rig: Rig) -> None:
    await rig.open(timeouts=replace(NEVER, idle=0.2))
    rig.backend.script(recv_head(), stop_reading(), send(BEGUN), stall())
    client = await rig.connect()
    await client.send(POST + bytes(20_000_000))

    assert (await client.take_head()).startswith(b"HTTP/1.1 200 ")
    await client.to_end()

    assert rig.outcomes == {"truncated": 1}
    assert rig.learnt == [Kind.OK, Kind.ERROR]


async def test_an_endpoint_that_reads_slowly_behind_the_head_of_its_answer_is_not_given_up(rig: Rig) -> None:
    """So slowly that the client stays stopped for several times as long as one may that reads nothing."""
    await rig.open(timeouts=replace(NEVER, idle=0.4))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        server.setblocking(False)
        await rig.apply(endpoints=(rig.endpoint(rig.backend, id="slow", port=server.getsockname()[1]),))
        client = await rig.connect()
        await client.send(POST + bytes(20_000_000))
        upstream, _ = await rig.loop.sock_accept(server)
        with upstream:
            assert (await rig.loop.sock_recv(upstream, 100)).startswith(b"POST ")
            await rig.loop.sock_sendall(upstream, BEGUN)
            await client.take_head()
            end = rig.loop.time() + 2.0
            while rig.loop.time() < end:
                assert await rig.loop.sock_recv(upstream, 16_384)
                await asyncio.sleep(0.02)

            assert rig.outcomes == {}
            client.rst(flush=False)
            await rig.settled()


async def test_a_client_that_sends_and_does_not_read_is_dropped_all_the_same(rig: Rig) -> None:
    await rig.open(timeouts=replace(NEVER, idle=0.3))
    rig.backend.script(recv_head(), send(BEGUN + bytes(20_000_000)), stall())
    client = await rig.connect()
    client.stop_reading()
    await client.send(POST)

    async with asyncio.timeout(LIMIT):
        while not rig.outcomes:
            await client.send(b"x")
            await asyncio.sleep(0.03)

    assert rig.outcomes == {"client_slow": 1}
    assert rig.learnt == [Kind.OK]
