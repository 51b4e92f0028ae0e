"""Peers that are slow but move, and those that stand still; what they hold; and what ends without their fault."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest

from controller.balancing.node import Kind
from controller.model.service import Limits, Retries, Timeouts
from controller.model.snapshot import SnapshotProxy
from tests.component.rig import (
    OK,
    SETTINGS,
    Rig,
    Wire,
    fin,
    recv_head,
    send,
    serve,
    stall,
    stop_reading,
    wait_for,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OLD_GET = b"GET / HTTP/1.0\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
BODY = bytes(6_000_000)  # more than the kernel takes off the proxy's hands
IMPATIENT = msgspec.structs.replace(SETTINGS, flush=0.2)


async def slow_socket(rig: Rig) -> socket.socket:
    """A client with a small buffer."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await rig.loop.sock_connect(sock, ("127.0.0.1", rig.port))
    return sock


async def read_slowly(rig: Rig, sock: socket.socket, seconds: float) -> int:
    """Take a little at a time for so long: how much that was."""
    end, taken = rig.loop.time() + seconds, 0
    while rig.loop.time() < end:
        data = await rig.loop.sock_recv(sock, 2000)
        assert data
        taken += len(data)
        await asyncio.sleep(0.02)
    return taken


async def read_all(rig: Rig, sock: socket.socket) -> int:
    """How much there is up to the FIN; ConnectionResetError if there is none."""
    taken = 0
    while data := await rig.loop.sock_recv(sock, 1 << 20):
        taken += len(data)
    return taken


async def closing(rig: Rig) -> tuple[socket.socket, int]:
    """A client whose last answer, of so many bytes, is over for the proxy but for what its socket doesn't take."""
    await rig.open(settings=IMPATIENT)
    pieces = 0

    async def fill(wire: Wire) -> None:
        nonlocal pieces
        while not any(front.transport.get_write_buffer_size() > 20_000 for front in rig.plane.fronts):
            wire.transport.write(bytes(10_000))
            pieces += 1
            await asyncio.sleep(0.001)

    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\n\r\n"), fill, fin())
    sock = await slow_socket(rig)
    await rig.loop.sock_sendall(sock, OLD_GET)
    await rig.reached(lambda: rig.outcomes == {"2xx": 1})
    assert rig.plane.fronts
    return sock, pieces * 10_000


async def test_a_client_that_takes_its_last_answer_slowly_gets_all_of_it(rig: Rig) -> None:
    """For several times as long as one has that takes nothing."""
    sock, size = await closing(rig)
    with sock:
        assert await read_slowly(rig, sock, 1.0) + await read_all(rig, sock) > size


async def test_a_client_that_stops_reading_its_last_answer_sees_no_clean_end(rig: Rig) -> None:
    sock, _ = await closing(rig)
    with sock:
        await rig.reached(lambda: not rig.plane.fronts)

        with pytest.raises(ConnectionResetError):
            await read_all(rig, sock)


async def test_an_endpoint_that_reads_slowly_is_not_given_up(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(idle=0.2), retries=Retries(attempts=0))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        server.setblocking(False)
        await rig.apply(endpoints=(rig.endpoint(rig.backend, id="slow", port=server.getsockname()[1]),))
        client = await rig.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n")
        sending = rig.loop.create_task(client.send(bytes(20_000_000)))
        upstream, _ = await rig.loop.sock_accept(server)
        with upstream:
            left = 20_000_000
            while left > 0:
                left -= len(await rig.loop.sock_recv(upstream, 200_000))
                await asyncio.sleep(0.02)
            await rig.loop.sock_sendall(upstream, OK)

            assert (await client.response()).status == 200
            await sending


async def test_a_client_that_reads_slowly_outlasts_idle_and_one_that_does_not_read_is_dropped(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(idle=0.2))
    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY), stall())
    with await slow_socket(rig) as sock:
        await rig.loop.sock_sendall(sock, GET)
        await read_slowly(rig, sock, 1.0)

        await rig.reached(lambda: rig.outcomes == {"client_slow": 1})
        with pytest.raises(ConnectionResetError):
            await read_all(rig, sock)


async def test_answers_of_ours_that_are_not_read_stop_the_requests(rig: Rig) -> None:
    """An endless row of them, pipelined, would be answered into memory."""
    await rig.open()
    client = await rig.connect()
    client.stop_reading()
    asking = b"OPTIONS * HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n"
    with await slow_socket(rig) as sock:
        for _ in range(200):
            try:
                async with asyncio.timeout(0.5):
                    await rig.loop.sock_sendall(sock, asking * 2000)
            except TimeoutError:
                break
        else:
            pytest.fail("all was taken")
        (front,) = (each for each in rig.plane.fronts if each.transport.get_write_buffer_size())
        assert front.transport.get_write_buffer_size() < 2 * SETTINGS.write_high
        answered = rig.outcomes

        await read_slowly(rig, sock, 0.1)
        await rig.loop.sock_recv(sock, 1 << 20)
        reading = rig.loop.create_task(read_all(rig, sock))
        await rig.reached(lambda: rig.outcomes != answered)
        reading.cancel()
    client.rst()


async def test_what_an_endpoint_has_not_taken_of_an_answered_request_is_not_kept(rig: Rig) -> None:
    await rig.open()
    early = b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n"
    rig.backend.script(recv_head(), stop_reading(), wait_for(told := asyncio.Event()), send(early), stall())
    client = await rig.connect()
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n" + bytes(20_000_000))
    await rig.reached(lambda: any(front.paused(front.UPSTREAM) for front in rig.plane.fronts))
    told.set()

    assert (await client.response()).status == 413
    client.rst(flush=False)
    upstream = await rig.backend.connection()
    upstream.start_reading()

    assert (await upstream.to_end())[0] == "RST"


async def test_a_large_head_is_held_for_as_long_as_its_request_is_served(rig: Rig) -> None:
    await rig.open(settings=msgspec.structs.replace(SETTINGS, memory=100_000))
    rig.backend.script(recv_head(), wait_for(answer := asyncio.Event()), send(OK), recv_head(), send(OK), stall())
    large = GET[:-2] + b"X: %s\r\n\r\n" % (b"x" * 60_000)
    first, second = await rig.connect(), await rig.connect()

    await first.send(large)
    await rig.backend.connection()
    assert 60_000 < rig.plane.memory.held < 62_000
    await second.send(large)
    assert (await second.response()).status == 503
    answer.set()

    assert (await first.response()).status == 200
    assert rig.plane.memory.held == 0


async def test_a_keep_alive_race_that_can_not_be_replayed_is_not_held_against_the_endpoint(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(OK), recv_head(), fin())
    client = await rig.connect()
    await client.send(GET)
    assert (await client.response()).status == 200

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")

    assert (await client.response()).status == 502
    assert rig.learnt == [Kind.OK]
    assert rig.lane.upstream.nodes[0].ejected_until is None


async def test_a_queued_request_with_its_whole_body_leaves_with_its_client(rig: Rig) -> None:
    await rig.open(limits=Limits(max_requests_per_endpoint=1, queue=10))
    rig.backend.script(recv_head(), stall())
    first, second = await rig.connect(), await rig.connect()
    await first.send(GET)
    await rig.backend.connection()
    await second.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
    await rig.reached(lambda: len(rig.lane.queue) == 1)

    second.fin()

    await rig.reached(lambda: len(rig.lane.queue) == 0)
    assert rig.outcomes == {"client_left": 1}
    first.rst()


async def test_an_answer_of_ours_tells_an_old_client_that_the_connection_stays(rig: Rig) -> None:
    await rig.open(retries=Retries(attempts=0))
    rig.backend.refuse()
    client = await rig.connect()

    await client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    answer = await client.response()

    assert (answer.status, answer.get("connection")) == (502, "keep-alive")
    assert client.ending == "open"


async def test_an_empty_line_behind_a_body_begins_no_request(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(request_headers=0.1, idle=0.3))
    rig.backend.script(serve(OK))
    client = await rig.connect()

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi\r\n")
    assert (await client.response()).status == 200

    assert await client.to_end() == ("FIN", b"")
    await rig.settled()
    assert rig.plane.memory.held == 0


async def test_a_line_is_logged_of_an_upgraded_connection_with_its_bytes_and_its_end(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(idle=0.2), proxy=SnapshotProxy(access_log="JSON"))
    rig.backend.script(recv_head(), send(SWITCH + b"hello"), stall())
    client = await rig.connect()
    await client.send(UPGRADE)
    await client.take_head()
    await client.send(b"abc")

    await client.to_end()
    await rig.reached(lambda: not rig.plane.fronts)
    rig.plane.access_log.flush()

    (line,) = rig.log
    assert (line["status"], line["outcome"], line["received"], line["sent"]) == (101, "idle", 3, 5)


async def test_short_of_memory_a_small_body_is_sent_and_not_kept(rig: Rig) -> None:
    await rig.open(settings=msgspec.structs.replace(SETTINGS, memory=100_000))
    rig.backend.script(recv_head(), wait_for(asked := asyncio.Event()), send(OK), stall())
    head = await rig.connect()
    await head.send(GET[:-2] + b"X: " + b"x" * 40_000)
    other = await rig.connect()
    await other.send(GET[:-2] + b"X: " + b"x" * 40_000)
    await rig.reached(lambda: rig.plane.memory.held > 75_000)
    before = rig.plane.memory.held
    client = await rig.connect()

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n" + bytes(2000))
    await rig.reached(lambda: rig.plane.memory.unkept == 1)

    assert rig.plane.memory.held == before
    asked.set()
    assert (await client.response()).status == 200
    head.rst()
    other.rst()


async def test_an_endpoint_that_spoke_and_closed_has_not_raced_for_an_old_client_either(rig: Rig) -> None:
    """What comes before the answer isn't passed on to it."""
    await rig.open(retries=Retries(attempts=0))
    rig.backend.script(recv_head(), send(OK), recv_head(), send(b"HTTP/1.1 103 X\r\n\r\n"), fin())
    client = await rig.connect()
    asking = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    await client.send(asking)
    assert (await client.response()).status == 200

    await client.send(asking)

    assert (await client.response()).status == 502
    assert len(rig.backend.connections) == 1
