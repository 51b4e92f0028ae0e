"""When a request is tried again, how long it waits first, and over which connection it goes."""

from __future__ import annotations

import asyncio
from math import inf
from random import Random
from time import monotonic

import pytest
from msgspec.structs import replace

from controller.balancing.node import Kind
from controller.model.service import Algorithm, Health, PassiveHealth, Retries, RetryBudget, Timeouts
from controller.proxy.listener import Front
from tests.component.rig import (
    LIMIT,
    OK,
    SETTINGS,
    Rig,
    Step,
    Wire,
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
PLENTY = RetryBudget(percent=100, min_per_second=100)
UNBLAMED = Health(passive=PassiveHealth(consecutive_failures=0))
FAILING = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"


class Pauses(Random):
    """Draws the same part of each range, and remembers the ranges."""

    def __init__(self, part: float) -> None:
        super().__init__(0)
        self.part = part
        self.drawn: list[tuple[float, float]] = []

    def uniform(self, a: float, b: float) -> float:
        self.drawn.append((a, b))
        return a + (b - a) * self.part


async def test_the_first_retry_goes_elsewhere_at_once_and_later_ones_wait_ever_longer(rig: Rig) -> None:
    retries = Retries(attempts=5, budget=PLENTY)
    await rig.open(backends=3, retries=retries, health=UNBLAMED, algorithm=Algorithm(type="RoundRobin"))
    rig.plane.random = pauses = Pauses(1.0)
    for backend in rig.backends:
        backend.refuse()
    began = monotonic()

    response = await rig.ask()

    assert response.status == 502
    assert pauses.drawn == [(0.0, 0.025), (0.0, 0.05), (0.0, 0.1), (0.0, 0.2)]
    assert monotonic() - began >= 0.375 - 0.01  # libuv counts in milliseconds, from when its round began
    assert rig.learnt == [Kind.CONNECT] * 6


async def test_a_retry_to_the_endpoint_that_has_failed_waits(rig: Rig) -> None:
    await rig.open()
    rig.plane.random = pauses = Pauses(1.0)
    rig.backend.scripts((recv_head(), rst()), (serve(OK),))

    assert (await rig.ask()).status == 200
    assert pauses.drawn == [(0.0, 0.025)]


async def test_the_pause_between_two_tries_is_not_the_answers_time(rig: Rig) -> None:
    await rig.open(replace(SETTINGS, coarse_tick=4 * LIMIT))
    rig.plane.random = Pauses(10.0)  # a quarter of a second
    rig.backend.scripts((recv_head(), rst()), (serve(OK),))
    client = await rig.connect()
    await client.send(GET)
    await rig.backend.connection()
    (front,) = rig.plane.fronts
    assert isinstance(front, Front)
    await rig.reached(lambda: front.exchange is None or front.exchange.backoff is not None)

    assert front.deadline == inf
    assert (await client.response()).status == 200


async def test_retries_end_with_the_whole_time_of_the_request(rig: Rig) -> None:
    await rig.open(retries=Retries(attempts=100, budget=PLENTY), timeouts=Timeouts(request=0.3), health=UNBLAMED)
    rig.plane.random = pauses = Pauses(1.0)  # tries at 0, 25, 75 and 175 ms; the next would be at 375
    rig.backend.refuse()

    response = await rig.ask()

    assert (response.status, response.get("connection")) == (504, None)
    assert rig.outcomes == {"total_timeout": 1}
    assert 1 <= len(pauses.drawn) <= 4
    assert len(rig.learnt) <= 4


async def test_what_fails_when_the_time_is_over_is_not_tried_again(rig: Rig) -> None:
    """The tick is late here: only the retry itself can see that there is no time left."""
    await rig.open(
        replace(SETTINGS, coarse_tick=4 * LIMIT),
        retries=Retries(attempts=3, conditions=(503,), budget=PLENTY),
        timeouts=Timeouts(request=0.1),
    )
    there, answer = asyncio.Event(), asyncio.Event()
    rig.backend.scripts((recv_head(), signal(there), wait_for(answer), send(FAILING), stall()), (serve(OK),))
    client = await rig.connect()
    await client.send(GET)
    await there.wait()

    rig.loop.call_later(0.15, answer.set)
    response = await client.response()

    assert (response.status, response.body) == (503, b"busy")
    assert len(rig.backend.connections) == 1


# The keep-alive race.


async def warm(rig: Rig, *behind: Step, connections: int = 1) -> None:
    """So many idle connections, on each of which the next request meets `behind`; later ones serve."""
    answer = asyncio.Event()
    first = (recv_head(), wait_for(answer), send(OK), recv_head(), *behind, stall())
    rig.backend.scripts(*([first] * connections), (recv_head(), recv(2), send(OK), stall()))
    clients = [await rig.connect() for _ in range(connections)]
    for client in clients:
        await client.send(GET)
    last = await rig.backend.connection(connections - 1)
    await last.until(lambda: bool(last.received))
    answer.set()
    for client in clients:
        assert (await client.response()).status == 200


async def test_a_race_is_made_good_on_a_fresh_connection_and_not_on_another_stale_one(rig: Rig) -> None:
    await rig.open(retries=Retries(attempts=0))
    await warm(rig, fin(), connections=2)

    response = await rig.ask(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")

    assert response.status == 200
    assert len(rig.backend.connections) == 3
    assert [wire.received.count(b"PUT ") for wire in sorted_by_puts(rig)] == [0, 1, 1]
    assert rig.backend.connections[2].received.endswith(b"hi")
    assert rig.learnt == [Kind.OK] * 3


def sorted_by_puts(rig: Rig) -> list[Wire]:
    return sorted(rig.backend.connections, key=lambda wire: wire.received.count(b"PUT "))


@pytest.mark.parametrize(("allowed", "status", "connections"), [(True, 200, 2), (False, 502, 1)])
async def test_a_post_that_met_a_race_is_replayed_only_where_that_is_allowed(
    allowed: bool, status: int, connections: int, rig: Rig
) -> None:
    await rig.open(retries=Retries(attempts=0, non_idempotent=allowed))
    await warm(rig, recv(2), fin())

    response = await rig.ask(POST)

    assert response.status == status
    assert len(rig.backend.connections) == connections
    assert rig.telemetry.retries == {}


async def test_a_race_is_made_good_once(rig: Rig) -> None:
    """A connection of which nothing has come yet isn't raced: what ends it has failed."""
    await rig.open(retries=Retries(attempts=0))
    await warm(rig, fin())
    rig.backend.scripts((), (recv_head(), fin()))

    assert (await rig.ask()).status == 502
    assert len(rig.backend.connections) == 2
    assert rig.learnt == [Kind.OK, Kind.RESET]
