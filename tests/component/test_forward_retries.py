"""Retries, the keep-alive race, timeouts, the queue, limits and affinity."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from controller.balancing.node import Kind
from controller.model.endpoints import Endpoint
from controller.model.service import (
    Affinity,
    Algorithm,
    Cookie,
    HashOn,
    Limits,
    Locality,
    Retries,
    RetryBudget,
    Timeouts,
)
from tests.component.rig import (
    OK,
    SETTINGS,
    Rig,
    Step,
    Wire,
    black_hole,
    fin,
    recv,
    recv_head,
    rst,
    send,
    serve,
    signal,
    stall,
    wait_for,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
PUT = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
FAILING = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"


class Case(NamedTuple):
    """One request, what the first endpoint does with it, and whether another one serves it."""

    name: str
    request: bytes
    steps: tuple[Step, ...]
    retries: Retries
    status: int
    tries: int

    def __str__(self) -> str:
        return self.name


DEFAULT = Retries()
BIG_PUT = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000
CASES = (
    Case("GET, reset", GET, (recv_head(), rst()), DEFAULT, 200, 2),
    Case("GET, closed", GET, (recv_head(), fin()), DEFAULT, 200, 2),
    Case("GET, reset in the head", GET, (recv_head(), send(b"HTTP/1.1 2"), rst()), DEFAULT, 200, 2),
    Case("GET, reset, no retries", GET, (recv_head(), rst()), Retries(attempts=0), 502, 1),
    Case("GET, reset, not a condition", GET, (recv_head(), rst()), Retries(conditions=("ConnectFailure",)), 502, 1),
    Case(
        "GET, reset, no budget",
        GET,
        (recv_head(), rst()),
        Retries(budget=RetryBudget(percent=0, min_per_second=0)),
        502,
        1,
    ),
    Case("POST, reset", POST, (recv_head(), recv(2), rst()), DEFAULT, 502, 1),
    Case("POST, reset, allowed", POST, (recv_head(), recv(2), rst()), Retries(non_idempotent=True), 200, 2),
    Case("PUT, reset", PUT, (recv_head(), recv(2), rst()), DEFAULT, 200, 2),
    Case("PUT, reset, too long to keep", BIG_PUT, (recv_head(), recv(100000), rst()), DEFAULT, 502, 1),
    Case("GET, 503, not a condition", GET, (recv_head(), send(FAILING), stall()), DEFAULT, 503, 1),
    Case("GET, 503, a condition", GET, (recv_head(), send(FAILING), stall()), Retries(conditions=(503,)), 200, 2),
    Case("GET, malformed", GET, (recv_head(), send(b"nonsense\r\n\r\n"), stall()), DEFAULT, 502, 1),
    Case(
        "GET, a 103 was relayed",
        GET,
        (recv_head(), send(b"HTTP/1.1 103 Early Hints\r\n\r\n"), rst()),
        DEFAULT,
        502,
        1,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_request_is_tried_again_only_if_that_is_safe(case: Case, rig: Rig) -> None:
    await rig.open(backends=2, retries=case.retries, algorithm=Algorithm(type="RoundRobin"))
    first: list[object] = []
    body = case.request.partition(b"\r\n\r\n")[2]

    def either() -> Step:
        async def step(wire: object) -> None:
            first.append(wire)
            steps = case.steps if len(first) == 1 else (recv_head(), recv(len(body)), send(OK), stall())
            for each in steps:
                await each(wire)  # type: ignore[arg-type]

        return step

    for backend in rig.backends:
        backend.script(either())
    client = await rig.connect()

    await client.send(case.request)
    response = await client.response()
    while response.status < 200:
        response = await client.response()

    assert response.status == case.status
    assert [len(backend.connections) for backend in rig.backends].count(1) == case.tries
    rig.plane.access_log.flush()
    assert rig.log[0]["tries"] == case.tries


async def test_a_refusing_endpoint_costs_nothing_even_for_a_post(rig: Rig) -> None:
    await rig.open(backends=2, algorithm=Algorithm(type="RoundRobin"))
    rig.backends[0].refuse()
    rig.backends[1].script(*(step for _ in range(4) for step in (recv_head(), recv(2), send(OK))), stall())

    assert [(await rig.ask(POST)).status for _ in range(4)] == [200] * 4
    assert rig.learnt.count(Kind.CONNECT) >= 1


async def test_only_the_last_attempts_failure_is_the_clients(rig: Rig) -> None:
    await rig.open(backends=2, retries=Retries(conditions=(503,)))
    for backend in rig.backends:
        backend.script(serve(FAILING))

    response = await rig.ask()

    assert (response.status, response.body) == (503, b"busy")
    assert rig.outcomes == {"5xx": 1}


async def test_a_single_endpoint_is_tried_again_after_a_pause(rig: Rig) -> None:
    await rig.open()
    rig.backend.scripts((recv_head(), rst()), (serve(OK),))

    assert (await rig.ask()).status == 200
    assert len(rig.backend.connections) == 2


# The keep-alive race.


async def _warm(rig: Rig, *behind: Step, body: int = 0) -> None:
    """One idle connection, on which the next request meets `behind`; it has so many bytes of body."""
    rig.backend.scripts((recv_head(), send(OK), recv_head(), *behind), (recv_head(), recv(body), send(OK), stall()))
    assert (await rig.ask()).status == 200


@pytest.mark.parametrize("step", [fin(), rst()], ids=["FIN", "RST"])
async def test_a_request_that_met_a_closing_idle_connection_is_replayed_freely(step: Step, rig: Rig) -> None:
    await rig.open(retries=Retries(attempts=0))
    await _warm(rig, step)

    response = await rig.ask()

    assert response.status == 200
    assert rig.learnt == [Kind.OK, Kind.OK]
    rig.plane.access_log.flush()
    assert [line["tries"] for line in rig.log] == [1, 1]


async def test_a_post_that_met_a_closing_idle_connection_is_not_replayed(rig: Rig) -> None:
    await rig.open()
    await _warm(rig, recv(2), fin(), body=2)

    assert (await rig.ask(POST)).status == 502


async def test_a_post_takes_no_connection_that_has_been_idle_for_long(rig: Rig) -> None:
    await rig.open()
    await _warm(rig, stall(), body=2)
    (pool,) = rig.lane.pools
    pool._idle[0].idle_since -= 1.1  # older than a second, as the clock would make it

    assert (await rig.ask(POST)).status == 200
    assert len(rig.backend.connections) == 2


# Timeouts.


async def test_a_slow_head_is_timed_out(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(request_headers=0.1))
    slow, silent = await rig.connect(), await rig.connect()

    await slow.send(b"GET / HT")

    assert (await slow.response()).status == 408
    assert await silent.to_end() == ("FIN", b"")


async def test_a_stalled_upload_is_timed_out_without_blame(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(idle=0.1))
    rig.backend.script(recv_head(), stall())

    response = await rig.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")

    assert (response.status, response.get("connection")) == (408, "close")
    assert rig.learnt == []


async def test_an_answer_that_does_not_come_is_timed_out(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(response=0.1), retries=Retries(attempts=0))
    rig.backend.script(recv_head(), stall())

    assert (await rig.ask()).status == 504
    assert rig.learnt == [Kind.TIMEOUT]


async def test_a_try_has_a_time_of_its_own(rig: Rig) -> None:
    await rig.open(retries=Retries(per_try_timeout=0.1, conditions=(504,)), timeouts=Timeouts(response=5))
    rig.backend.scripts((recv_head(), stall()), (serve(OK),))

    assert (await rig.ask()).status == 200
    assert rig.learnt == [Kind.TIMEOUT, Kind.OK]


async def test_a_body_that_stops_is_truncated(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(idle=0.1))
    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), stall())
    client = await rig.connect()

    await client.send(GET)
    await client.take_head()

    assert await client.to_end() == ("FIN", b"abc")
    assert rig.learnt == [Kind.OK, Kind.ERROR]


async def test_the_whole_request_can_be_bounded(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(request=0.1))
    rig.backend.script(recv_head(), stall())

    assert (await rig.ask()).status == 504
    assert rig.outcomes == {"total_timeout": 1}


async def test_a_stream_outlasts_every_timeout_but_idle(rig: Rig) -> None:
    await rig.open(timeouts=Timeouts(request_headers=0.1, response=0.1, connect=0.1, idle=0.5))
    go = [asyncio.Event() for _ in range(3)]
    rig.backend.script(
        recv_head(),
        send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        *(step for event in go for step in (wait_for(event), send(b"1\r\nx\r\n"))),
        send(b"0\r\n\r\n"),
        stall(),
    )
    client = await rig.connect()
    await client.send(GET)
    await client.take_head()

    for event in go:
        await asyncio.sleep(0.15)
        event.set()
        assert await client.take(6) == b"1\r\nx\r\n"


async def test_a_connect_that_gets_no_answer_is_timed_out_and_delays_no_other(rig: Rig) -> None:
    await rig.open(
        backends=2, timeouts=Timeouts(connect=0.1), retries=Retries(attempts=1), algorithm=Algorithm(type="RoundRobin")
    )
    with black_hole() as port:
        hole, good = rig.endpoint(rig.backends[0], port=port), rig.endpoint(rig.backends[1])
        await rig.apply(endpoints=(hole, good))

        answers = await asyncio.gather(*(rig.ask() for _ in range(6)))

    assert [answer.status for answer in answers] == [200] * 6
    assert rig.telemetry.retries["store/shop", "ConnectFailure"] >= 1


# Limits.


async def test_requests_over_the_limit_wait_their_turn(rig: Rig) -> None:
    await rig.open(limits=Limits(max_requests_per_endpoint=1))
    go = asyncio.Event()
    rig.backend.script(*(step for _ in range(3) for step in (recv_head(), wait_for(go), send(OK))), stall())
    clients = [await rig.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        await client.send(GET.replace(b"/ ", b"/%d " % number))
        await rig.reached(lambda number=number: rig.lane.upstream.nodes[0].inflight + len(rig.lane.queue) == number + 1)

    assert (rig.lane.upstream.nodes[0].inflight, len(rig.lane.queue)) == (1, 2)
    go.set()
    assert [(await client.response()).status for client in clients] == [200] * 3
    received = bytes(rig.backend.connections[0].received)
    assert received.index(b"/0") < received.index(b"/1") < received.index(b"/2")
    assert len(rig.backend.connections) == 1


async def test_a_queue_that_is_full_or_too_slow_is_an_answer(rig: Rig) -> None:
    await rig.open(limits=Limits(max_requests_per_endpoint=1, queue=1, queue_timeout=0.1))
    there = asyncio.Event()
    rig.backend.script(recv_head(), signal(there), stall())
    serving = await rig.connect()
    await serving.send(GET)
    await there.wait()

    waiting, refused = await rig.connect(), await rig.connect()
    await waiting.send(GET)
    await rig.reached(lambda: len(rig.lane.queue) == 1)
    await refused.send(GET)

    assert (await refused.response()).get("retry-after") == "1"
    assert (await waiting.response()).status == 503
    assert rig.outcomes == {"queue_full": 1, "queue_timeout": 1}


async def test_a_waiter_that_leaves_frees_its_place(rig: Rig) -> None:
    await rig.open(limits=Limits(max_requests_per_endpoint=1, queue=1))
    go = asyncio.Event()
    rig.backend.script(recv_head(), wait_for(go), send(OK), recv_head(), send(OK), stall())
    serving, leaving, staying = [await rig.connect() for _ in range(3)]
    await serving.send(GET)
    await rig.reached(lambda: rig.lane.upstream.nodes[0].inflight == 1)
    await leaving.send(GET)
    await rig.reached(lambda: len(rig.lane.queue) == 1)

    leaving.rst()
    await rig.reached(lambda: len(rig.lane.queue) == 0)
    await staying.send(GET)
    await rig.reached(lambda: len(rig.lane.queue) == 1)
    go.set()

    assert (await staying.response()).status == 200
    assert (await serving.response()).status == 200


# Affinity and hashing.

STICKY = Affinity(cookie=Cookie())


async def test_a_cookie_brings_a_client_back_to_its_endpoint(rig: Rig) -> None:
    await rig.open(backends=3, affinity=STICKY, algorithm=Algorithm(type="RoundRobin"))
    for number, backend in enumerate(rig.backends):
        backend.script(serve(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number))

    first = await rig.ask()
    cookie = first.get("set-cookie")
    assert cookie is not None
    pair, *attributes = cookie.split("; ")
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Lax"]
    again = [await rig.ask(b"GET / HTTP/1.1\r\nHost: a\r\nCookie: x=y; %s\r\n\r\n" % pair.encode()) for _ in range(5)]

    assert {answer.body for answer in again} == {first.body}
    assert [answer.get("set-cookie") for answer in again] == [None] * 5
    assert len({(await rig.ask()).body for _ in range(6)}) == 3


async def test_a_bound_endpoint_that_refuses_is_replaced_within_the_request(rig: Rig) -> None:
    await rig.open(backends=2, affinity=STICKY, algorithm=Algorithm(type="RoundRobin"))
    for number, backend in enumerate(rig.backends):
        backend.script(
            recv_head(), send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n%d" % number), stall()
        )
    first = await rig.ask()
    pair = (first.get("set-cookie") or "").split(";")[0].encode()
    rig.backends[int(first.body)].refuse()

    again = await rig.ask(b"GET / HTTP/1.1\r\nHost: a\r\nCookie: " + pair + b"\r\n\r\n")

    assert (again.status, again.body != first.body) == (200, True)
    assert again.get("set-cookie") not in (None, first.get("set-cookie"))


async def test_a_hash_key_goes_to_the_same_endpoint(rig: Rig) -> None:
    hashing = Algorithm(type="ConsistentHash", hash_on=(HashOn(header="X-User"), HashOn(query="id")))
    await rig.open(backends=3, algorithm=hashing)
    for number, backend in enumerate(rig.backends):
        backend.script(serve(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number))

    by_user = {
        user: {(await rig.ask(b"GET / HTTP/1.1\r\nHost: a\r\nX-User: u%d\r\n\r\n" % user)).body for _ in range(3)}
        for user in range(12)
    }

    assert all(len(seen) == 1 for seen in by_user.values())
    assert len(set.union(*by_user.values())) > 1
    assert len({(await rig.ask(b"GET /?id=7 HTTP/1.1\r\nHost: a\r\n\r\n")).body for _ in range(3)}) == 1


async def test_a_retry_leaves_a_zone_whose_only_endpoint_refuses(rig: Rig) -> None:
    await rig.open(msgspec.structs.replace(SETTINGS, zone="near"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    endpoints = (
        rig.endpoint(rig.backend, zone="far"),
        Endpoint(id="refusing", address="127.0.0.1", port=closed, zone="near"),
    )

    await rig.apply(endpoints=endpoints, locality=Locality(prefer="Zone"))

    assert [(await rig.ask()).status for _ in range(3)] == [200] * 3
    assert rig.learnt[:2] == [Kind.CONNECT, Kind.OK]


# Pools and memory.


async def test_a_keep_alive_timeout_of_the_endpoint_is_heeded(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(
        serve(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n")
    )

    await rig.ask()

    assert "keep=0.5s" in repr(rig.lane.pools[0])


async def test_each_keep_alive_race_halves_what_is_kept(rig: Rig) -> None:
    await rig.open()
    await _warm(rig, fin())

    await rig.ask()

    assert "keep=2s" in repr(rig.lane.pools[0])
    assert rig.lane.made.races == 1


async def test_idle_connections_age_out(rig: Rig) -> None:
    await rig.open(settings=msgspec.structs.replace(SETTINGS, upstream_idle=0.05))
    await rig.ask()
    wire = rig.backend.connections[0]

    await wire.until(lambda: wire.ending != "open")

    assert wire.ending == "FIN"


async def test_a_process_short_of_memory_refuses_new_requests_and_keeps_no_copies(rig: Rig) -> None:
    await rig.open(settings=msgspec.structs.replace(SETTINGS, memory=100_000), retries=Retries(attempts=0))
    rig.backend.script(recv_head(), stall())
    slow = await rig.connect()
    await slow.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 50_000)
    other = await rig.connect()
    await other.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 45_000)
    await rig.reached(lambda: rig.plane.memory.held > 90_000)

    refused = await rig.ask()

    assert (refused.status, refused.get("retry-after"), refused.get("connection")) == (503, "1", None)
    assert rig.plane.memory.refused == 1
    await slow.send(b"x" * 9_000)
    assert (await slow.response()).status == 503
    other.rst()
    await rig.reached(lambda: rig.plane.memory.held == 0)


async def test_an_endpoint_that_closes_idle_connections_early_costs_no_request(rig: Rig) -> None:
    """60 clients ask 8 times each, at gaps around the endpoint's keep-alive of 0.1 s, so that many meet its FIN."""
    await rig.open(retries=Retries(attempts=0))
    random = Random(7)

    async def until_idle(wire: Wire) -> None:
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0.1):
                    await wire.take_head()
                await wire.send(OK)
        wire.fin()

    async def ask() -> list[int]:
        client = await rig.connect()
        found = []
        for _ in range(8):
            await client.send(GET)
            found.append((await client.response()).status)
            await asyncio.sleep(random.uniform(0.08, 0.12))
        return found

    rig.backend.script(until_idle)
    answers = await asyncio.gather(*(ask() for _ in range(60)))

    assert {status for found in answers for status in found} == {200}
    assert Kind.RESET not in rig.learnt
