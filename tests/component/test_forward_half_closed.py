"""Clients that say that they are leaving while an answer waits for them: what is theirs arrives, and nothing stays."""

from __future__ import annotations

import asyncio
import socket

import pytest
from msgspec.structs import replace

from controller.model.service import Limits
from tests.component.rig import LIMIT, OK, SETTINGS, Rig, recv_head, send, serve, stall

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
BODY = bytes(6_000_000)  # more than the kernel takes off the proxy's hands
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


async def half_closed(rig: Rig) -> socket.socket:
    """A client with a small buffer that leaves, its answer blocked, and is still there to read it."""
    there = len(rig.plane.fronts)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await rig.loop.sock_connect(sock, ("127.0.0.1", rig.port))
    await rig.loop.sock_sendall(sock, GET)
    await rig.reached(lambda: len(rig.plane.fronts) > there and all(front.full for front in rig.plane.fronts))
    ended = rig.outcomes.get("client_left", 0)
    sock.shutdown(socket.SHUT_WR)
    await rig.reached(lambda: rig.outcomes.get("client_left", 0) > ended)
    return sock


async def read_all(rig: Rig, sock: socket.socket) -> bytes:
    """What there is up to the FIN; ConnectionResetError if there is none."""
    taken = b""
    while data := await rig.loop.sock_recv(sock, 1 << 20):
        taken += data
    return taken


async def test_clients_that_half_close_and_read_nothing_of_their_answers_are_let_go(rig: Rig) -> None:
    await rig.open(replace(SETTINGS, flush=0.2), limits=Limits(max_connections=2))
    rig.backend.scripts((recv_head(), send(LARGE), stall()), (recv_head(), send(LARGE), stall()), (serve(OK),))
    with await half_closed(rig) as one, await half_closed(rig) as other:
        await rig.reached(lambda: not rig.plane.fronts)

        assert rig.plane.memory.held == 0
        assert (await rig.ask()).status == 200
        for sock in (one, other):
            with pytest.raises(ConnectionResetError):
                await read_all(rig, sock)


async def test_a_client_that_half_closes_and_reads_slowly_gets_what_there_was_for_it(rig: Rig) -> None:
    """For several times as long as one has that takes nothing."""
    await rig.open(replace(SETTINGS, flush=0.2))
    rig.backend.script(recv_head(), send(LARGE), stall())
    with await half_closed(rig) as sock:
        rig.plane.access_log.flush()
        (line,) = rig.log
        answer, end = b"", rig.loop.time() + 1.0
        while rig.loop.time() < end:
            answer += await rig.loop.sock_recv(sock, 2000)
            await asyncio.sleep(0.02)

        answer += await read_all(rig, sock)
        _, _, body = answer.partition(b"\r\n\r\n")

        assert line["sent"] == len(body)


async def test_over_the_budget_a_client_that_half_closed_makes_room(rig: Rig) -> None:
    """Each holds a piece of 256 kB, and only one of those fits."""
    await rig.open(replace(SETTINGS, flush=4 * LIMIT, memory=300_000))
    rig.backend.script(recv_head(), send(LARGE), stall())
    with await half_closed(rig) as sock:
        client = await rig.connect()
        client.stop_reading()
        await client.send(GET)
        await rig.reached(lambda: any(front.full and front.exchange is not None for front in rig.plane.fronts))

        await rig.reached(lambda: len(rig.plane.fronts) == 1)
        with pytest.raises(ConnectionResetError):
            await read_all(rig, sock)


async def test_half_an_answer_looks_whole_to_no_old_client_that_half_closes(rig: Rig) -> None:
    """There a FIN is the end of a body without a length."""
    await rig.open()
    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\n\r\nabc"), stall())
    client = await rig.connect()
    await client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert await client.take_to(b"abc")

    client.half_close()

    assert await client.to_end() == ("RST", b"")
