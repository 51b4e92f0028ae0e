"""What is refused over a limit: connections, bodies that grow too long, heads that nobody has memory for."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from controller.balancing.node import Kind
from controller.model.service import Limits
from tests.component.rig import LIMIT, SETTINGS, Response, Rig, Wire, recv_head, recv_to, send, signal, stall

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def served(rig: Rig) -> Wire:
    """A client that has its answer, and keeps its connection."""
    client = await rig.connect()
    await client.send(GET)
    assert (await client.response()).status == 200
    return client


def refused(response: Response) -> tuple[int, str | None, str | None]:
    return response.status, response.get("connection"), response.get("retry-after")


async def test_of_the_connections_over_the_limit_so_many_get_an_answer_and_the_rest_a_reset(rig: Rig) -> None:
    bound = SETTINGS.lingering_connections
    await rig.open(replace(SETTINGS, lingering=4 * LIMIT), limits=Limits(max_connections=1))
    first = await served(rig)

    lingering = [await rig.connect() for _ in range(bound)]
    answers = [await client.response() for client in lingering]
    beyond = await rig.connect()

    assert bound == 256
    assert {refused(answer) for answer in answers} == {(503, "close", "1")}
    assert await beyond.to_end() == ("RST", b"")
    assert rig.telemetry.refused_connections == bound + 1
    assert first.ending == "open"


async def test_a_client_for_which_there_are_no_descriptors_is_refused_like_one_over_the_limit(rig: Rig) -> None:
    await rig.open()
    rig.plane.client_room = 2
    clients = [await served(rig) for _ in range(2)]

    response = await (await rig.connect()).response()

    assert refused(response) == (503, "close", "1")
    assert rig.outcomes == {"2xx": 2, "max_connections": 1}
    clients[0].fin()
    await rig.reached(lambda: len(rig.plane.fronts) < 3)


async def test_a_tcp_client_for_which_there_are_no_descriptors_is_reset(rig: Rig) -> None:
    await rig.open(protocol="TCP")
    rig.backend.script(stall())
    rig.plane.client_room = 1
    first = await rig.connect()
    await rig.backend.connection()

    assert await (await rig.connect()).to_end() == ("RST", b"")
    assert rig.telemetry.refused_connections == 1
    assert first.ending == "open"


async def test_fewer_clients_than_max_connections_may_fit_and_that_is_said(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.open(limits=Limits(max_connections=2))
    rig.plane.client_room = 3

    await rig.apply(limits=Limits(max_connections=4))
    await rig.apply(limits=Limits(max_connections=3))

    assert [record.message for record in caplog.records] == ["maxConnections is more than descriptors allow"]


FRAMINGS = {
    "length": (b"Content-Length: 10\r\n\r\nabc", b"abc"),
    "chunked": (b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"3\r\nabc\r\n"),
    "until close": (b"\r\nabc", b"3\r\nabc\r\n"),
}


@pytest.mark.parametrize("framing", FRAMINGS)
async def test_a_body_that_grows_too_long_behind_a_begun_answer_aborts_both(framing: str, rig: Rig) -> None:
    """It is too late for a 413: neither the answer nor the endpoint's request may look whole."""
    await rig.open(max_request_body_bytes=10)
    answer, begun = FRAMINGS[framing]
    rig.backend.script(recv_head(), recv_to(b"12345"), send(b"HTTP/1.1 200 OK\r\n" + answer), stall())
    client = await rig.connect()
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n")
    await client.take_head()
    await client.take(len(begun))

    await client.send(b"6\r\n678901\r\n")

    assert (await client.to_end())[1] == b""
    upstream = rig.backend.connections[0]
    await upstream.until(lambda: upstream.ending != "open")
    assert upstream.ending == "RST"
    assert b"0\r\n\r\n" not in upstream.received
    assert rig.outcomes == {"body_too_large": 1}
    assert rig.learnt == [Kind.OK]


async def test_a_body_of_just_the_limit_passes_and_a_byte_more_does_not(rig: Rig) -> None:
    await rig.open(max_request_body_bytes=10)
    rig.backend.script(recv_head(), recv_to(b"0\r\n\r\n"), send(b"HTTP/1.1 204 No Content\r\n\r\n"), stall())
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

    fitting = await rig.ask(head + b"a\r\n0123456789\r\n0\r\n\r\n")
    longer = await rig.ask(head + b"b\r\n01234567890\r\n0\r\n\r\n")

    assert (fitting.status, longer.status) == (204, 413)


async def test_an_unfinished_head_over_the_whole_budget_is_refused_at_once(rig: Rig) -> None:
    """At once: not by the tick, which here never comes, that drops who stands still."""
    await rig.open(replace(SETTINGS, memory=100_000, coarse_tick=4 * LIMIT))
    first, second = await rig.connect(), await rig.connect()
    await first.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 60_000)
    await rig.reached(lambda: rig.plane.memory.held > 60_000)
    await second.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 39_000)
    await rig.reached(lambda: rig.plane.memory.held > 99_000)

    await second.send(b"x" * 2_000)
    response = await second.response()

    assert (response.status, response.get("retry-after")) == (503, "1")
    assert rig.outcomes == {"memory": 1}
    assert first.ending == "open"
    second.fin()
    await rig.reached(lambda: rig.plane.memory.held < 61_000)


OWN = {
    "no endpoint": (503, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a loop": (
        508,
        b"HEAD / HTTP/1.1\r\nHost: a\r\n" + b"Steelyard-Hop: store.shop.steelyard\r\n" * 5 + b"\r\n",
    ),
}


@pytest.mark.parametrize("why", OWN)
async def test_an_answer_of_the_proxys_own_to_head_has_no_body(why: str, rig: Rig) -> None:
    """A byte of a body would be taken for the beginning of the next answer."""
    await rig.open()
    if why == "no endpoint":
        await rig.apply(endpoints=(rig.endpoint(rig.backend, state="PARKED"),))
    status, head = OWN[why]
    client = await rig.connect()

    await client.send(head + head.replace(b"HEAD", b"GET"))
    to_head, to_get = await client.response(bodyless=True), await client.response()

    assert (to_head.status, to_get.status) == (status, status)
    assert to_head.get("content-length") == str(len(to_get.body))
    assert to_get.raw.startswith(b"HTTP/1.1 ")


async def test_a_failed_attempt_at_head_is_told_without_a_body(rig: Rig) -> None:
    await rig.open()
    there = asyncio.Event()
    rig.backend.script(recv_head(), signal(there), send(b"nonsense\r\n\r\n"), stall())
    client = await rig.connect()

    await client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

    assert (await client.response(bodyless=True)).status == 502
    assert await client.to_end() == ("FIN", b"")
