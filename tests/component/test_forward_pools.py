"""How long a connection to an endpoint is used, and how many of them wait idly for the next request."""

from __future__ import annotations

import asyncio
import socket
from time import monotonic

import pytest
from msgspec.structs import replace

from tests.component.rig import (
    LIMIT,
    OK,
    SETTINGS,
    Rig,
    Wire,
    recv_head,
    send,
    serve,
    signal,
    stall,
    stop_reading,
    wait_for,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def requests(wire: Wire) -> int:
    return wire.received.count(b"GET ")


async def test_a_connection_carries_so_many_requests_and_no_more(rig: Rig) -> None:
    await rig.open(replace(SETTINGS, upstream_requests=2))

    answers = [await rig.ask() for _ in range(5)]
    await rig.backend.connections[1].until(lambda: rig.backend.connections[1].ending != "open")

    assert {answer.status for answer in answers} == {200}
    assert [requests(wire) for wire in rig.backend.connections] == [2, 2, 1]
    assert [wire.ending for wire in rig.backend.connections] == ["FIN", "FIN", "open"]


async def test_a_connection_is_as_old_as_its_beginning_however_often_it_is_used(rig: Rig) -> None:
    await rig.open()
    began = monotonic()
    await rig.ask()
    (pool,) = rig.lane.pools
    (connection,) = pool._idle
    age = connection.retires - began
    await rig.ask()

    assert connection.retires == began + age
    assert age == pytest.approx(SETTINGS.upstream_age, abs=LIMIT)
    connection.retires -= age  # as the clock would make it
    assert [(await rig.ask()).status for _ in range(2)] == [200, 200]
    assert [requests(wire) for wire in rig.backend.connections] == [3, 1]
    assert await rig.backend.connections[0].to_end() == ("FIN", b"")


async def test_no_more_idle_connections_are_kept_than_the_bound_and_the_freshest_of_them(rig: Rig) -> None:
    bound = SETTINGS.upstream_idle_connections
    await rig.open()
    answer = [asyncio.Event() for _ in range(bound + 2)]
    rig.backend.scripts(*((recv_head(), wait_for(event), send(OK), stall()) for event in answer))
    clients = [await rig.connect() for _ in answer]
    for client in clients:
        await client.send(GET)
    last = await rig.backend.connection(bound + 1)
    await last.until(lambda: requests(last) == 1)

    for number, event in enumerate(answer):  # one by one, so that it is known which were answered first
        event.set()
        await clients[number].response()

    assert bound == 128
    assert [pool.idle for pool in rig.lane.pools] == [bound]
    for surplus in rig.backend.connections[:2]:
        await surplus.to_end()
    assert [wire.ending for wire in rig.backend.connections] == ["FIN"] * 2 + ["open"] * bound


async def test_a_connection_whose_endpoint_left_in_mid_request_is_not_kept(rig: Rig) -> None:
    await rig.open(backends=2)
    there, answer = asyncio.Event(), asyncio.Event()
    for backend in rig.backends:
        backend.script(recv_head(), signal(there), wait_for(answer), send(OK), stall())
    client = await rig.connect()
    await client.send(GET)
    await there.wait()
    served, other = sorted(rig.backends, key=lambda backend: not backend.connections)

    other.script(serve(OK))
    await rig.apply(endpoints=(rig.endpoint(other),))
    answer.set()

    assert (await client.response()).status == 200
    wire = served.connections[0]
    await wire.until(lambda: wire.ending != "open")
    assert wire.ending == "FIN"
    assert [pool.idle for pool in rig.lane.pools] == []


async def narrowed(rig: Rig, told: asyncio.Event) -> Wire:
    """A client, and a pooled connection to an endpoint that answers the next request when told, and reads none of it.

    Its socket takes little of that; what it doesn't waits in the proxy.
    """
    rig.backend.scripts(
        (recv_head(), stop_reading(), send(OK), wait_for(told), send(OK), stall()),
        (recv_head(), stop_reading(), stall()),
    )
    client = await rig.connect()
    await client.send(GET)
    await client.response()
    (pool,) = rig.lane.pools
    (connection,) = pool._idle
    connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return client


async def upload_without_end(rig: Rig, client: Wire) -> None:
    """Its endpoint doesn't read, either: the client is stopped."""
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n")
    await client.send(bytes(20_000_000))
    await rig.reached(lambda: any(front.paused(front.UPSTREAM) for front in rig.plane.fronts))


async def test_an_upload_is_held_back_behind_one_that_was_answered_before_the_endpoint_had_read_it(rig: Rig) -> None:
    await rig.open()
    client = await narrowed(rig, told := asyncio.Event())
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    (front,) = rig.plane.fronts
    await rig.reached(lambda: front.exchange is not None)
    exchange = front.exchange
    transport = exchange.attempt.connection.transport
    while transport.get_write_buffer_size() < 20_000:
        await client.send(b"2710\r\n" + bytes(10_000) + b"\r\n")
        await asyncio.sleep(0.001)
    await client.send(b"ea60\r\n" + bytes(60_000) + b"\r\n0\r\n\r\n")
    await rig.reached(lambda: exchange.upload.ended and front.paused(front.UPSTREAM))

    told.set()
    assert (await client.response()).status == 200
    await upload_without_end(rig, client)

    assert len(rig.backend.connections) == 2
    rig.backend.connections[0].start_reading()
    assert (await rig.backend.connections[0].to_end())[0] == "RST"


async def test_an_upload_is_held_back_behind_a_long_head_that_the_endpoint_had_not_read(rig: Rig) -> None:
    await rig.open(request_header_bytes=1_048_576)
    client = await narrowed(rig, told := asyncio.Event())
    await client.send(GET[:-2] + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n")
    await rig.reached(lambda: any(front.paused(front.UPSTREAM) for front in rig.plane.fronts))

    told.set()
    assert (await client.response()).status == 200
    await upload_without_end(rig, client)

    assert len(rig.backend.connections) == 2
