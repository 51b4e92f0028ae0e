"""Each timeout bounds what it is said to bound, from where it is said to begin; half an answer never looks whole."""

from __future__ import annotations

import asyncio
import socket
from time import monotonic
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from controller.balancing.node import Kind
from controller.model.service import Limits, Retries, Timeouts
from tests.component.rig import (
    LIMIT,
    OK,
    SETTINGS,
    Rig,
    Wire,
    fin,
    recv_head,
    send,
    signal,
    stall,
    wait_for,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OLD_GET = b"GET / HTTP/1.0\r\n\r\n"
LONG = 4 * LIMIT  # seconds: a timeout that must not be the one that ends the test
NEVER = Timeouts(connect=LONG, request_headers=LONG, response=LONG, idle=LONG)
ONCE = Retries(attempts=0)
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"


STILL = replace(SETTINGS, coarse_tick=LONG)


def turn(rig: Rig, now: float) -> None:
    """The tick, at a time of the test's choosing: with `STILL` no other comes, however slow the machine is."""
    for front in tuple(rig.plane.fronts):
        if front.deadline <= now:
            front.expire(now)


class Half(NamedTuple):
    """Half an answer, and what a client of 1.1 and of 1.0 may see of it: how it ends, the bytes behind the head.

    A FIN ends a body without a length: there only a reset says that something is missing (RFC 9112 §8).
    """

    name: str
    answer: bytes
    to_11: tuple[str, bytes]
    to_10: tuple[str, bytes]

    def __str__(self) -> str:
        return self.name


HALVES = (
    Half("head only", b"Content-Length: 9\r\n\r\n", ("FIN", b""), ("FIN", b"")),
    Half("length", b"Content-Length: 9\r\n\r\nabc", ("FIN", b"abc"), ("FIN", b"abc")),
    Half("chunked", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", ("FIN", b"3\r\nabc\r\n"), ("RST", b"abc")),
    Half("chunk", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", ("FIN", b"3\r\nabc\r\n"), ("RST", b"abc")),
    Half("until close", b"\r\nabc", ("FIN", b"3\r\nabc\r\n"), ("RST", b"abc")),
)


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("bound", ["idle", "request"])
async def test_an_answer_that_a_deadline_cuts_never_looks_whole(bound: str, version: str, half: Half, rig: Rig) -> None:
    outcome = {"idle": "truncated", "request": "total_timeout"}[bound]
    await rig.open(STILL, timeouts=replace(NEVER, **{bound: 20.0}))
    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\n" + half.answer), stall())
    client = await rig.connect()
    ending, seen = half.to_11 if version == "1.1" else half.to_10
    began = monotonic()

    await client.send(GET if version == "1.1" else OLD_GET)
    await client.take_head()
    assert await client.take(len(seen)) == seen
    (front,) = rig.plane.fronts
    assert began + 20.0 <= front.deadline <= monotonic() + 20.0
    turn(rig, front.deadline)

    assert await client.to_end() == (ending, b"")
    await rig.settled()
    assert rig.outcomes == {outcome: 1}
    assert rig.learnt == [Kind.OK, Kind.ERROR]
    upstream = rig.backend.connections[0]
    await upstream.until(lambda: upstream.ending != "open")
    assert upstream.ending == "RST"


async def test_the_whole_time_of_a_request_ends_a_stream_that_is_never_idle(rig: Rig) -> None:
    await rig.open(timeouts=replace(NEVER, request=0.5))

    async def drip(wire: Wire) -> None:
        while wire.ending == "open":
            await wire.send(b"1\r\nx\r\n")
            await asyncio.sleep(0.01)

    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), drip)
    client = await rig.connect()
    began = monotonic()

    await client.send(GET)
    await client.take_head()
    ending, body = await client.to_end()

    assert monotonic() - began >= 0.5
    assert (ending, body.replace(b"1\r\nx\r\n", b"")) == ("FIN", b"")
    assert rig.outcomes == {"total_timeout": 1}


async def test_a_stream_is_not_idle_while_bytes_come(rig: Rig) -> None:
    await rig.open(STILL, timeouts=replace(NEVER, idle=20.0))
    more = asyncio.Event()
    rig.backend.script(
        recv_head(),
        send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"),
        wait_for(more),
        send(b"1\r\ny\r\n"),
        stall(),
    )
    client = await rig.connect()
    await client.send(GET)
    await client.take_to(b"x\r\n")
    (front,) = rig.plane.fronts
    first = front.deadline

    more.set()
    await client.take_to(b"y\r\n")
    turn(rig, first)

    assert client.ending == "open"
    assert first < front.deadline <= monotonic() + 20.0


# Before the head.


@pytest.mark.parametrize("pieces", [(b"abcdef",), (b"abc", b"def")], ids=["at once", "in pieces"])
async def test_an_answer_behind_a_body_has_the_time_that_begins_with_the_bodys_last_byte(
    pieces: tuple[bytes, ...], rig: Rig
) -> None:
    await rig.open(timeouts=replace(NEVER, response=0.2), retries=ONCE)
    rig.backend.script(recv_head(), stall())
    client = await rig.connect()
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n" + pieces[0])
    upstream = await rig.backend.connection()
    await upstream.until(lambda: upstream.received.endswith(pieces[0]))
    began = monotonic()

    for piece in pieces[1:]:
        await asyncio.sleep(0.4)  # twice the answer's time: it hasn't begun
        began = monotonic()
        await client.send(piece)
    response = await client.response()

    assert response.status == 504
    assert rig.outcomes == {"response_timeout": 1}
    assert rig.learnt == [Kind.TIMEOUT]
    assert len(pieces) == 1 or monotonic() - began >= 0.2


async def test_the_answers_time_does_not_bound_a_body_that_is_still_to_come(rig: Rig) -> None:
    await rig.open(timeouts=replace(NEVER, response=0.05, idle=0.5))
    rig.backend.script(recv_head(), stall())
    client = await rig.connect()
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc")
    upstream = await rig.backend.connection()
    await upstream.until(lambda: upstream.received.endswith(b"abc"))
    last = monotonic()

    await client.send(b"de")
    response = await client.response()

    assert response.status == 408
    assert monotonic() - last >= 0.5
    assert rig.outcomes == {"request_timeout": 1}
    assert rig.learnt == []


async def test_interim_answers_do_not_put_off_the_answers_time(rig: Rig) -> None:
    await rig.open(replace(SETTINGS, informational=1000), timeouts=replace(NEVER, response=0.5), retries=ONCE)

    async def hint(wire: Wire) -> None:
        while wire.ending == "open":
            await wire.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await asyncio.sleep(0.01)

    rig.backend.script(recv_head(), hint)
    client = await rig.connect()
    await client.send(GET)

    statuses: list[int] = []
    async with asyncio.timeout(LIMIT):
        while not statuses or statuses[-1] == 103:
            statuses.append((await client.response()).status)

    assert statuses[0] == 103
    assert statuses[-1] == 504
    assert rig.outcomes == {"response_timeout": 1}


async def test_the_whole_time_of_a_request_runs_in_the_queue_too(rig: Rig) -> None:
    await rig.open(timeouts=NEVER, limits=Limits(max_requests_per_endpoint=1, queue_timeout=LONG))
    there, answer = asyncio.Event(), asyncio.Event()
    rig.backend.script(recv_head(), signal(there), wait_for(answer), send(OK), stall())
    served, waiting = await rig.connect(), await rig.connect()
    await served.send(GET)
    await there.wait()
    await rig.apply(timeouts=replace(NEVER, request=0.2))
    began = monotonic()

    await waiting.send(GET)
    response = await waiting.response()

    assert (response.status, response.get("connection")) == (504, None)
    assert monotonic() - began >= 0.2
    assert rig.outcomes == {"total_timeout": 1}
    assert (rig.learnt, len(rig.lane.queue)) == ([], 0)
    answer.set()
    assert (await served.response()).status == 200
    assert bytes(rig.backend.connections[0].received).count(b"GET ") == 1


# After the answer.


async def test_a_tunnels_silence_is_counted_from_its_last_byte_of_either_side(rig: Rig) -> None:
    await rig.open(STILL, timeouts=replace(NEVER, idle=20.0))
    rig.backend.script(recv_head(), send(SWITCH), stall())
    client = await rig.connect()
    await client.send(UPGRADE)
    await client.response()
    (front,) = rig.plane.fronts
    upstream = rig.backend.connections[0]

    for sender, receiver in ((client, upstream), (upstream, client)):
        before = front.deadline
        await sender.send(b"x")
        assert await receiver.take(1) == b"x"
        turn(rig, before)
        assert before < front.deadline <= monotonic() + 20.0
        assert (client.ending, upstream.ending) == ("open", "open")
    turn(rig, front.deadline)

    assert (await client.to_end())[0] == "FIN"
    assert (await upstream.to_end())[0] == "FIN"


def shrink(rig: Rig) -> None:
    """What the proxy writes to its only client waits in the process: its socket takes next to nothing."""
    (front,) = rig.plane.fronts
    front.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


async def narrow(rig: Rig) -> Wire:
    """A client that reads nothing, with little room for it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await rig.loop.sock_connect(sock, ("127.0.0.1", rig.port))
    _, client = await rig.loop.create_connection(Wire, sock=sock)
    rig.clients.append(client)
    client.stop_reading()
    await rig.reached(lambda: len(rig.plane.fronts) == 1)
    shrink(rig)
    return client


BODY = b"x" * 50_000  # more than both sockets take, less than makes the proxy stop reading the endpoint
WHOLE = {
    "length": (b"Content-Length: %d\r\n\r\n" % len(BODY)) + BODY,
    "until close": b"\r\n" + BODY,
}


@pytest.mark.parametrize("framing", WHOLE)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_client_that_does_not_read_its_last_answer_is_let_go_and_sees_that_it_is_short(
    version: str, framing: str, rig: Rig
) -> None:
    await rig.open(replace(SETTINGS, flush=0.3), timeouts=NEVER)
    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + WHOLE[framing]), fin(), stall())
    client = await narrow(rig)
    await client.send(GET.replace(b"Host", b"Connection: close\r\nHost") if version == "1.1" else OLD_GET)
    await rig.reached(lambda: rig.outcomes == {"2xx": 1})
    ended = monotonic()

    async with asyncio.timeout(LIMIT):
        await rig.plane.emptied()
    waited = monotonic() - ended
    client.start_reading()
    await client.take_head()
    ending, body = await client.to_end()

    assert waited >= 0.25  # the outcome is seen a little later than the answer ends
    assert len(body) < len(BODY)
    assert ending == "RST" or (version, framing) != ("1.0", "until close")
