"""Closing behind an answer while the client still sends: what is written must arrive (RFC 9112 §9.6).

A close over unread bytes makes a reset, which destroys what is still on its way. So each client here has a small
receive buffer and leaves an earlier, long answer unread: the one that matters waits behind it in the proxy's socket.
"""

from __future__ import annotations

import asyncio
import socket
from time import monotonic
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from controller.model.service import Timeouts
from tests.component.rig import LIMIT, OK, SETTINGS, Response, Rig, Step, Wire, recv_head, send, stall, wait_for

LONG = b"x" * 100_000  # more than the client's buffer takes, less than the proxy's socket does
FIRST = b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n"
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
PATIENT = replace(SETTINGS, lingering=4 * LIMIT)


async def emptied(rig: Rig) -> None:
    async with asyncio.timeout(LIMIT):
        await rig.plane.emptied()


async def narrow(rig: Rig) -> Wire:
    """A client that has been sent a long answer and doesn't read it yet."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    sock.setblocking(False)
    await rig.loop.sock_connect(sock, ("127.0.0.1", rig.port))
    _, client = await rig.loop.create_connection(Wire, sock=sock)
    rig.clients.append(client)
    client.stop_reading()
    await client.send(FIRST)
    await rig.reached(lambda: sum(rig.outcomes.values()) == 1)
    return client


def answering(*behind: Step) -> tuple[Step, ...]:
    """The long answer, then what the next request on this connection meets."""
    return (recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LONG) + LONG), *behind, stall())


class Case(NamedTuple):
    """A request whose answer comes before the client has sent all of it, or all that it wants to send behind it."""

    name: str
    request: bytes
    status: int
    outcome: str
    behind: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return self.name


UPLOAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n" + b"y" * 1000
CASES = (
    Case("an early answer of the endpoint", UPLOAD, 403, "4xx", (recv_head(), send(FORBIDDEN))),
    Case("a body that is too long", UPLOAD.replace(b"9999999", b"99999999"), 413, "body_too_large"),
    Case("a body that stops", UPLOAD, 408, "request_timeout", (recv_head(),)),
    Case("a malformed head", b"GET / HTTP/1.1\r\n\r\n" + b"y" * 1000, 400, "malformed_request"),
    Case("an unknown method", b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n" + b"y" * 1000, 501, "not_implemented"),
)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_the_answer_reaches_a_client_that_goes_on_sending(case: Case, rig: Rig) -> None:
    await rig.open(PATIENT, max_request_body_bytes=10_000_000, timeouts=Timeouts(idle=0.2))
    rig.backend.script(*answering(*case.behind))
    client = await narrow(rig)
    await client.send(case.request)
    await rig.reached(lambda: rig.outcomes.get(case.outcome) == 1)

    await client.send(b"z" * 50_000)
    client.start_reading()
    first, second = await client.response(), await client.response()

    assert (first.status, first.body) == (200, LONG)
    assert (second.status, second.get("connection")) == (case.status, "close")
    assert await client.to_end() == ("FIN", b"")
    client.fin()
    await emptied(rig)
    assert client.ending == "FIN"


async def test_the_last_answer_reaches_a_client_that_has_sent_more_behind_its_last_request(rig: Rig) -> None:
    """The bytes that wait behind it stop the reading: what comes after those must be read again, and discarded."""
    await rig.open(PATIENT)
    answer = asyncio.Event()
    rig.backend.script(*answering(recv_head(), wait_for(answer), send(OK)))
    client = await narrow(rig)
    await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    await rig.reached(lambda: rig.lane.upstream.nodes[0].inflight == 1)
    await client.send(FIRST)
    await rig.reached(lambda: rig.plane.memory.held == len(FIRST))
    await client.send(b"z" * 50_000)

    answer.set()
    await rig.reached(lambda: sum(rig.outcomes.values()) == 2)
    await client.send(b"z" * 50_000)
    client.start_reading()
    answers: list[Response] = [await client.response() for _ in range(2)]

    assert [each.body for each in answers] == [LONG, b"ok"]
    assert await client.to_end() == ("FIN", b"")
    client.fin()
    await emptied(rig)
    assert client.ending == "FIN"
    assert len(rig.backend.connections) == 1


async def refused(rig: Rig) -> Wire:
    client = await rig.connect()
    await client.send(b"GET / HTTP/1.1\r\n\r\n")
    assert (await client.response()).status == 400
    assert (await client.to_end())[0] == "FIN"
    return client


async def test_no_more_is_discarded_than_the_bound(rig: Rig) -> None:
    """What the kernel holds comes on top of it: megabytes tell the bound from none."""
    bound = SETTINGS.lingering_bytes
    await rig.open(PATIENT)
    within, beyond = await refused(rig), await refused(rig)

    for _ in range(bound // 4096):
        await within.send(b"z" * 4096)
    within.fin()
    await within.until(lambda: within.closed)
    sent = 0
    while not beyond.closed and sent < 64 * bound:
        await beyond.send(b"z" * bound)
        sent += bound

    assert bound == 262_144
    assert within.ending == "FIN"
    await beyond.until(lambda: beyond.closed)
    assert beyond.ending == "RST"
    await emptied(rig)


async def test_the_lingering_ends_by_its_time(rig: Rig) -> None:
    await rig.open(replace(SETTINGS, lingering=0.2))
    began = monotonic()
    client = await refused(rig)

    await emptied(rig)

    assert monotonic() - began >= 0.2
    assert rig.plane.lingering == 0
    assert client.ending == "FIN"
