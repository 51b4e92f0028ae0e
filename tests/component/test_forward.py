"""The plain path: methods, framings, versions; keep-alive and pools; pipelining; back-pressure; our own answers."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from controller.balancing.node import Kind
from controller.model.service import Limits, Timeouts
from tests.component.rig import (
    LIMIT,
    OK,
    SETTINGS,
    Rig,
    half_close,
    recv,
    recv_head,
    recv_to,
    send,
    send_bytewise,
    serve,
    stall,
    stop_reading,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nabcde"
OLD = b"HTTP/1.0 200 OK\r\n\r\nabcde"


async def test_a_request_is_forwarded_with_its_bytes_and_answered(rig: Rig) -> None:
    await rig.open()

    response = await rig.ask(b"GET /a%2Fb?q=1 HTTP/1.1\r\nHost: shop\r\nX-Dup: 1\r\nx-dup: 2\r\n\r\n")

    assert (response.status, response.body) == (200, b"ok")
    seen = bytes(rig.backend.connections[0].received)
    assert seen.startswith(b"GET /a%2Fb?q=1 HTTP/1.1\r\n")
    assert b"X-Dup: 1\r\nx-dup: 2\r\n" in seen
    assert b"X-Forwarded-For: 127.0.0.1\r\n" in seen
    assert rig.outcomes == {"2xx": 1}
    assert rig.learnt == [Kind.OK]


class Framing(NamedTuple):
    """One upstream answer, and what a client of each version sees of it."""

    name: str
    answer: bytes
    closes: bool  # the backend ends the connection behind it
    to_11: tuple[str | None, bytes]  # framing field, body bytes
    to_10: tuple[str | None, bytes]

    def __str__(self) -> str:
        return self.name


FRAMINGS = (
    Framing("length", SIZED, False, ("content-length", b"abcde"), ("content-length", b"abcde")),
    Framing("chunked", CHUNKED, False, ("transfer-encoding", b"5\r\nabcde\r\n0\r\n\r\n"), (None, b"abcde")),
    Framing("until close", UNTIL_CLOSE, True, ("transfer-encoding", b"5\r\nabcde\r\n0\r\n\r\n"), (None, b"abcde")),
    Framing("until close, 1.0", OLD, True, ("transfer-encoding", b"5\r\nabcde\r\n0\r\n\r\n"), (None, b"abcde")),
)


def framing_of(fields: list[tuple[str, str]]) -> str | None:
    return next((name for name, _ in fields if name in ("content-length", "transfer-encoding")), None)


@pytest.mark.parametrize("case", FRAMINGS, ids=str)
async def test_each_framing_reaches_a_new_client_whole(case: Framing, rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(case.answer), *((half_close(),) if case.closes else ()), stall())
    client = await rig.connect()

    await client.send(GET)
    response = await client.response()

    assert (framing_of(response.fields), response.body) == case.to_11
    assert response.get("connection") is None
    assert rig.outcomes == {"2xx": 1}


@pytest.mark.parametrize("case", FRAMINGS, ids=str)
async def test_each_framing_reaches_an_old_client_whole(case: Framing, rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(case.answer), *((half_close(),) if case.closes else ()), stall())
    client = await rig.connect()

    await client.send(b"GET / HTTP/1.0\r\n\r\n")
    response = await client.response()

    assert (framing_of(response.fields), response.body) == case.to_10
    assert (await client.to_end()) == ("FIN", b"")


@pytest.mark.parametrize("case", FRAMINGS, ids=str)
async def test_head_is_complete_at_its_head_in_each_framing(case: Framing, rig: Rig) -> None:
    await rig.open()
    head = case.answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    rig.backend.script(recv_head(), send(head), stall())
    client = await rig.connect()

    await client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    response = await client.response(bodyless=True)

    assert response.status == 200
    assert response.get("content-length") == ("5" if case is FRAMINGS[0] else None)
    assert response.get("transfer-encoding") is None
    await rig.settled()


@pytest.mark.parametrize("status", [204, 304])
async def test_bodyless_statuses_leave_the_connection_usable(status: int, rig: Rig) -> None:
    await rig.open()
    rig.backend.script(serve(b"HTTP/1.1 %d X\r\nETag: 1\r\n\r\n" % status))
    client = await rig.connect()

    for _ in range(3):
        await client.send(GET)
        response = await client.response()
        assert (response.status, framing_of(response.fields)) == (status, None)

    assert len(rig.backend.connections) == 1


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PATCH", b"DELETE", b"PROPFIND"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_request_body_arrives_in_its_own_framing(method: bytes, framing: str, rig: Rig) -> None:
    await rig.open()
    end = b"hello" if framing == "length" else b"0\r\n\r\n"
    rig.backend.script(recv_head(), recv_to(end), send(OK), stall())
    field, body = {
        "length": (b"Content-Length: 5", b"hello"),
        "chunked": (b"Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n"),
    }[framing]

    response = await rig.ask(method + b" / HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n" + body)

    assert response.status == 200
    seen = bytes(rig.backend.connections[0].received)
    assert seen.startswith(method + b" / HTTP/1.1\r\n")
    assert seen.endswith(b"\r\n\r\n" + body)
    assert seen.count(b"ontent-Length") + seen.count(b"ransfer-Encoding") == 1


async def test_bytes_one_at_a_time_make_the_same_exchange(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), recv(5), send_bytewise(SIZED), stall())
    client = await rig.connect()

    for byte in b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello":
        await client.send(bytes([byte]))
    response = await client.response()

    assert (response.status, response.body) == (200, b"abcde")


# Keep-alive and pools.


async def test_a_connection_serves_many_requests_over_one_upstream_connection(rig: Rig) -> None:
    await rig.open()
    client = await rig.connect()

    for _ in range(5):
        await client.send(GET)
        assert (await client.response()).status == 200

    assert len(rig.backend.connections) == 1
    assert [pool.idle for pool in rig.lane.pools] == [1]


async def test_the_freshest_idle_connection_is_taken(rig: Rig) -> None:
    await rig.open()

    first, second = await rig.connect(), await rig.connect()
    rig.backend.script(serve(OK))
    await first.send(GET)
    await second.send(GET)
    await first.response()
    await second.response()
    used = {number for number, wire in enumerate(rig.backend.connections) if wire.received.count(b"GET") == 1}
    assert used == {0, 1}
    for _ in range(3):
        await first.send(GET)
        await first.response()

    assert sorted(wire.received.count(b"GET") for wire in rig.backend.connections) == [1, 4]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", "the backend said close"),
        (OK + b"x", "bytes behind the response"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "a 1.0 backend"),
        (b"HTTP/1.1 204 No Content\r\n\r\nbody", "a body where none may be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_upstream_connection_in_doubt_is_not_used_again(answer: bytes, why: str, rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(answer), stall())
    client = await rig.connect()

    for _ in range(2):
        await client.send(GET)
        assert (await client.response()).status in (200, 204)

    assert len(rig.backend.connections) == 2, why


async def test_an_idle_connection_that_speaks_is_dropped(rig: Rig) -> None:
    await rig.open()
    await rig.ask()
    wire = rig.backend.connections[0]

    await wire.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    await wire.until(lambda: wire.ending != "open")

    assert [pool.idle for pool in rig.lane.pools] == [0]
    assert (await rig.ask()).status == 200


async def test_an_old_client_keeps_its_connection_only_if_it_asks(rig: Rig) -> None:
    await rig.open()
    asking, silent = await rig.connect(), await rig.connect()

    await asking.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    await silent.send(b"GET / HTTP/1.0\r\n\r\n")

    assert (await asking.response()).get("connection") == "keep-alive"
    assert (await silent.response()).get("connection") == "close"
    assert (await silent.to_end()) == ("FIN", b"")
    assert asking.ending == "open"


# Pipelining.


async def test_pipelined_requests_are_answered_in_order(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(
        *(step for n in range(3) for step in (recv_head(), send(b"HTTP/1.1 20%d X\r\nContent-Length: 0\r\n\r\n" % n))),
        stall(),
    )
    client = await rig.connect()

    await client.send(GET * 3)

    assert [(await client.response()).status for _ in range(3)] == [200, 201, 202]


async def test_a_good_request_before_garbage_is_answered_and_then_refused(rig: Rig) -> None:
    await rig.open()
    client = await rig.connect()

    await client.send(GET + b"G\x00T / HTTP/1.1\r\n\r\n")

    assert (await client.response()).status == 200
    refusal = await client.response()
    assert (refusal.status, refusal.get("connection")) == (400, "close")
    assert (await client.to_end())[0] == "FIN"
    assert rig.backend.connections[0].received.count(b"HTTP/1.1") == 1


async def test_what_follows_a_close_is_ignored(rig: Rig) -> None:
    await rig.open()
    client = await rig.connect()

    await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + GET)

    assert (await client.response()).get("connection") == "close"
    assert (await client.to_end()) == ("FIN", b"")
    assert rig.backend.connections[0].received.count(b"GET") == 1


async def test_a_row_of_requests_that_the_proxy_answers_itself_does_not_nest(rig: Rig) -> None:
    await rig.open()
    client = await rig.connect()

    await client.send(b"OPTIONS * HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n" * 2000)

    for _ in range(2000):
        assert (await client.response()).status == 200
    assert rig.backend.connections == []


# Back-pressure.


async def test_a_client_that_does_not_read_stops_the_upstream(rig: Rig) -> None:
    await rig.open()
    piece = b"x" * 65536
    total = 64 * 1024 * 1024
    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total), stall())
    client = await rig.connect()
    client.stop_reading()
    await client.send(GET)
    upstream = await rig.backend.connection()
    await upstream.until(lambda: b"\r\n\r\n" in upstream.received)

    sent = 0
    while upstream.transport.get_write_buffer_size() < 4 * 1024 * 1024:
        upstream.transport.write(piece)
        sent += len(piece)
        await asyncio.sleep(0)
    held = rig.plane.memory.held

    assert 0 < held <= 512 * 1024
    client.start_reading()
    while sent < total:
        upstream.transport.write(piece)
        sent += len(piece)
        if upstream.transport.get_write_buffer_size() > 1024 * 1024:
            await asyncio.sleep(0)
    await client.until(lambda: len(client.received) >= total)


async def test_an_endpoint_that_does_not_read_stops_the_client(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), stop_reading(), stall())
    client = await rig.connect()
    total = 64 * 1024 * 1024

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % total)
    upstream = await rig.backend.connection()
    await upstream.until(lambda: b"\r\n\r\n" in upstream.received)
    while client.transport.get_write_buffer_size() < 4 * 1024 * 1024:
        client.transport.write(b"x" * 65536)
        await asyncio.sleep(0)

    (front,) = rig.plane.fronts
    assert front.paused(front.UPSTREAM)
    assert rig.plane.memory.held <= 512 * 1024
    client.rst(flush=False)
    upstream.start_reading()  # a RST isn't seen while the client isn't read
    await rig.settled()


# Answers of our own.


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 501),
        (b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ],
)
async def test_what_cannot_be_served_is_refused_and_reaches_no_endpoint(
    request_bytes: bytes, status: int, rig: Rig
) -> None:
    await rig.open()
    client = await rig.connect()

    await client.send(request_bytes)
    response = await client.response()

    assert (response.status, response.get("connection")) == (status, "close")
    assert response.get("x-request-id")
    assert response.get("content-type") == "text/plain"
    assert (await client.to_end())[0] == "FIN"
    assert rig.backend.connections == []


async def test_no_endpoint_is_answered_at_once_and_keeps_the_connection(rig: Rig) -> None:
    await rig.open(backends=0)
    client = await rig.connect()

    for _ in range(2):
        await client.send(GET)
        response = await client.response()
        assert (response.status, response.get("retry-after"), response.get("connection")) == (503, "1", None)

    assert rig.outcomes == {"no_endpoints": 2}


async def test_too_many_passes_through_the_same_object_are_a_loop(rig: Rig) -> None:
    await rig.open()

    response = await rig.ask(
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"Steelyard-Hop: store.shop.steelyard\r\n" * 5 + b"\r\n"
    )

    assert response.status == 508


async def test_a_connection_over_the_limit_gets_an_answer_that_arrives(rig: Rig) -> None:
    await rig.open(limits=Limits(max_connections=1))
    first = await rig.connect()
    await first.send(GET)
    await first.response()

    second = await rig.connect()
    await second.send(GET)
    response = await second.response()
    await second.send(GET)

    assert (response.status, response.get("retry-after")) == (503, "1")
    assert (await second.to_end())[0] == "FIN"
    assert rig.telemetry.refused_connections == 1


async def test_refused_connections_that_linger_leave_their_place_to_who_comes(rig: Rig) -> None:
    await rig.open(replace(SETTINGS, lingering=LIMIT), limits=Limits(max_connections=2))
    served = [await rig.connect() for _ in range(2)]
    for client in served:
        await client.send(GET)
        await client.response()
    refused = [await rig.connect() for _ in range(2)]
    assert [(await client.response()).status for client in refused] == [503, 503]
    for client in served:
        client.fin()
    await rig.reached(lambda: len(rig.plane.fronts) == 2)

    assert rig.plane.lingering == 2
    assert (await rig.ask()).status == 200
    for client in refused:
        client.fin()
    await rig.reached(lambda: not rig.plane.fronts)
    assert rig.lane.connections == 0


async def test_an_idle_connection_is_closed_silently(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(idle=0.1))
    client = await rig.connect()
    await client.send(GET)
    await client.response()

    assert (await client.to_end()) == ("FIN", b"")


async def test_the_access_log_tells_one_line_per_request(rig: Rig) -> None:
    await rig.open()
    await rig.ask(b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n".replace(b"\x7f", b"|"))
    rig.plane.access_log.flush()

    (line,) = rig.log
    assert (line["status"], line["outcome"], line["target"], line["tries"]) == (200, "2xx", "/|", 1)
    assert line["sent"] == 2


@pytest.mark.parametrize("answer", [SIZED, CHUNKED], ids=["whole", "chunked"])
async def test_a_bug_costs_its_request_and_not_the_process(
    answer: bytes, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(answer), stall())
    (node,) = rig.lane.upstream.nodes
    learn, rig.bugs = node.observers, 1

    def stumble(*_: object) -> None:
        node.observers = learn
        raise ZeroDivisionError

    node.observers = (stumble,)
    failed = await rig.ask()

    assert (failed.status, failed.get("connection")) == (500, "close")
    assert [record.message for record in caplog.records] == ["bug while forwarding"]
    assert (await rig.ask()).status == 200
