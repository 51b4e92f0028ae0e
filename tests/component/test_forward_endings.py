"""How an exchange ends early: truncation, the client leaving, an answer before the body's end, refused bodies."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from controller.balancing.node import Kind
from controller.model.service import Retries
from tests.component.rig import Rig, Step, black_hole, fin, half_close, recv, recv_head, rst, send, signal, stall

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OLD_GET = b"GET / HTTP/1.0\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"
NO_RETRIES = Retries(attempts=0)

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"


class Ending(NamedTuple):
    """An upstream answer that ends as `step` does, and what a client of 1.1 and of 1.0 may see of its body."""

    name: str
    answer: bytes
    step: Step
    to_11: tuple[str, bytes]  # how the connection ends, the bytes behind the head
    to_10: tuple[str, bytes]
    failed: bool  # the endpoint learns one more failure

    def __str__(self) -> str:
        return self.name


# RFC 9112 §8: a message is complete only if its framing says so; a close-delimited one by a clean close.
ENDINGS = (
    Ending("length, FIN at once", SIZED, fin(), ("FIN", b""), ("FIN", b""), True),
    Ending("length, FIN in the middle", SIZED + b"abc", fin(), ("FIN", b"abc"), ("FIN", b"abc"), True),
    Ending("length, RST in the middle", SIZED + b"abc", rst(), ("FIN", b"abc"), ("FIN", b"abc"), True),
    Ending("length, FIN a byte early", SIZED + b"abcdefghi", fin(), ("FIN", b"abcdefghi"), ("FIN", b"abcdefghi"), True),
    Ending("chunked, FIN at once", CHUNKED, fin(), ("FIN", b""), ("RST", b""), True),
    Ending("chunked, FIN in a chunk", CHUNKED + b"5\r\nab", fin(), ("FIN", b"2\r\nab\r\n"), ("RST", b"ab"), True),
    Ending("chunked, RST in a chunk", CHUNKED + b"5\r\nab", rst(), ("FIN", b"2\r\nab\r\n"), ("RST", b"ab"), True),
    Ending(
        "chunked, FIN behind a chunk", CHUNKED + b"2\r\nab\r\n", fin(), ("FIN", b"2\r\nab\r\n"), ("RST", b"ab"), True
    ),
    Ending(
        "chunked, FIN in the last chunk",
        CHUNKED + b"2\r\nab\r\n0\r\n",
        fin(),
        ("FIN", b"2\r\nab\r\n"),
        ("RST", b"ab"),
        True,
    ),
    Ending(
        "chunked, malformed behind a chunk",
        CHUNKED + b"2\r\nab\r\n",
        send(b"X\r\n"),
        ("FIN", b"2\r\nab\r\n"),
        ("RST", b"ab"),
        True,
    ),
    Ending("until close, RST", UNTIL_CLOSE + b"abc", rst(), ("FIN", b"3\r\nabc\r\n"), ("RST", b"abc"), True),
    Ending(
        "until close, FIN: complete",
        UNTIL_CLOSE + b"abc",
        fin(),
        ("open", b"3\r\nabc\r\n0\r\n\r\n"),
        ("FIN", b"abc"),
        False,
    ),
)


@pytest.mark.parametrize("case", ENDINGS, ids=str)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_half_an_answer_never_looks_whole(case: Ending, version: str, rig: Rig) -> None:
    await rig.open(retries=NO_RETRIES)
    seen = asyncio.Event()

    async def once_seen(wire: object) -> None:
        # A RST destroys what the proxy hasn't read yet: the case is about what it has.
        await asyncio.wait_for(seen.wait(), 5)

    head, _, body = case.answer.partition(b"\r\n\r\n")
    rig.backend.script(recv_head(), send(head + b"\r\n\r\n" + body), once_seen, case.step, stall())
    client = await rig.connect()
    ending, expected = case.to_11 if version == "1.1" else case.to_10

    await client.send(GET if version == "1.1" else OLD_GET)
    await client.take_head()
    if expected:
        first = expected.removesuffix(b"0\r\n\r\n")
        await client.until(lambda: len(client.received) - client.taken >= len(first) or client.ending != "open")
    seen.set()
    if ending == "open":
        assert await client.take(len(expected)) == expected
    else:
        assert await client.to_end() == (ending, expected)

    await rig.settled()
    assert rig.learnt == [Kind.OK, *([Kind.ERROR] if case.failed else [])]
    assert client.ending == ending


async def test_a_malformed_chunk_that_comes_with_the_head_is_a_bad_gateway(rig: Rig) -> None:
    """Nothing has gone out, so nothing has to be cut."""
    await rig.open(retries=NO_RETRIES)
    rig.backend.script(recv_head(), send(CHUNKED + b"2\r\nab\r\nX\r\n"), stall())
    client = await rig.connect()

    await client.send(GET)
    response = await client.response()

    assert (response.status, response.get("connection")) == (502, None)
    assert rig.outcomes == {"malformed_response": 1}
    assert rig.learnt == [Kind.OK, Kind.ERROR]


@pytest.mark.parametrize("step", [fin(), rst()], ids=["FIN", "RST"])
async def test_the_end_of_an_answer_to_head_means_nothing(step: Step, rig: Rig) -> None:
    await rig.open(retries=NO_RETRIES)
    rig.backend.script(recv_head(), send(SIZED), step)
    client = await rig.connect()

    await client.send(HEAD)

    assert (await client.response(bodyless=True)).status == 200
    await rig.settled()
    assert client.ending == "open"
    assert rig.learnt == [Kind.OK]


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nX: y\r\n"])
@pytest.mark.parametrize("step", [fin(), rst()], ids=["FIN", "RST"])
async def test_an_end_in_the_head_is_a_bad_gateway(begun: bytes, step: Step, rig: Rig) -> None:
    await rig.open(retries=NO_RETRIES)
    rig.backend.script(recv_head(), send(begun), step)
    client = await rig.connect()

    await client.send(GET)
    response = await client.response()

    assert (response.status, response.get("connection")) == (502, None)
    assert rig.learnt == [Kind.RESET]
    assert rig.outcomes == {"reset": 1}


async def test_a_malformed_answer_is_a_bad_gateway(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), stall())

    assert (await rig.ask()).status == 502
    assert rig.outcomes == {"malformed_response": 1}
    assert len(rig.backend.connections) == 1


# The client leaves.


PHASES = {
    "before the head": (recv_head(),),
    "in the head": (recv_head(), send(b"HTTP/1.1 200 OK\r\n")),
    "in the body": (recv_head(), send(SIZED + b"abc")),
    "in a chunked body": (recv_head(), send(CHUNKED + b"3\r\nabc\r\n")),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", ["FIN", "RST"])
async def test_a_client_that_leaves_frees_the_node_and_ends_the_upstream_connection(
    phase: str, how: str, rig: Rig
) -> None:
    await rig.open()
    there = asyncio.Event()
    rig.backend.script(*PHASES[phase], signal(there), stall())
    client = await rig.connect()
    await client.send(GET)
    await there.wait()
    if "body" in phase:
        await client.take_head()

    if how == "FIN":
        client.fin()
    else:
        client.rst()
    await rig.backend.connections[0].until(lambda: rig.backend.connections[0].ending != "open")

    await rig.settled()
    assert rig.lane.upstream.nodes[0].inflight == 0
    assert rig.learnt in ([], [Kind.OK])
    assert rig.outcomes == {"client_left": 1}
    rig.plane.access_log.flush()
    assert rig.log[0]["status"] == 499


async def test_a_client_that_leaves_in_its_upload_never_ends_the_request(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), recv(3), stall())
    client = await rig.connect()

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    upstream = await rig.backend.connection()
    await upstream.until(lambda: b"abc" in upstream.received)
    client.fin()
    await upstream.until(lambda: upstream.ending != "open")

    assert upstream.ending == "RST"
    assert b"0\r\n\r\n" not in upstream.received


async def test_a_client_that_leaves_while_connecting_leaves_no_task(rig: Rig) -> None:
    await rig.open()
    with black_hole() as port:
        await rig.apply(endpoints=(rig.endpoint(rig.backend, port=port),))
        client = await rig.connect()
        await client.send(GET)
        await rig.reached(lambda: rig.lane.made.connects == 1)
        client.rst()
        await rig.settled()

    assert rig.outcomes == {"client_left": 1}
    assert rig.learnt == []


# Answers before the body's end.


async def test_an_early_answer_reaches_the_client_that_is_still_sending(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"), stall())
    client = await rig.connect()

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000)
    response = await client.response()
    await client.send(b"x" * 1000)

    assert (response.status, response.get("connection"), response.body) == (403, "close", b"no")
    assert (await client.to_end())[0] == "FIN"
    assert [pool.idle for pool in rig.lane.pools] == [0]


async def test_an_early_answer_that_closes_behind_it_is_not_lost(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(
        recv_head(), send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"), half_close(), stall()
    )
    client = await rig.connect()

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + b"x" * 10000)

    assert (await client.response()).status == 413


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_body_over_the_limit_is_refused_and_never_ended(framing: str, rig: Rig) -> None:
    await rig.open(max_request_body_bytes=10)
    rig.backend.script(recv_head(), stall())
    client = await rig.connect()
    field, body = {
        "length": (b"Content-Length: 20", b"x" * 20),
        "chunked": (b"Transfer-Encoding: chunked", b"14\r\n" + b"x" * 20 + b"\r\n"),
    }[framing]

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n" + body)
    response = await client.response()

    assert (response.status, response.get("connection")) == (413, "close")
    assert all(b"0\r\n\r\n" not in wire.received for wire in rig.backend.connections)


async def test_a_malformed_chunk_is_refused_and_the_upstream_request_is_cut(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), stall())
    client = await rig.connect()

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    upstream = await rig.backend.connection()
    await upstream.until(lambda: b"abc" in upstream.received)
    await client.send(b"0x3\r\n")

    assert (await client.response()).status == 400
    await upstream.until(lambda: upstream.ending != "open")
    assert upstream.ending == "RST"
    assert rig.learnt == []
