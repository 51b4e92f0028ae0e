"""What an endpoint's answers teach: back-pressure costs it, `Retry-After` says for how long, and neither ejects."""

from __future__ import annotations

import asyncio

import pytest

from controller.balancing.latency import PENALTY
from controller.balancing.node import Kind, Node
from controller.model.service import Algorithm, Health, PassiveHealth, Retries
from tests.component.rig import LIMIT, OK, Rig, Wire, serve

BARE = Retries(attempts=0)
QUICK = Health(passive=PassiveHealth(consecutive_failures=2))


def answer(status: int, *lines: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n" % status + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def listen(rig: Rig) -> list[tuple[Kind, float | None]]:
    """What the first endpoint's observers are told from now on."""
    heard: list[tuple[Kind, float | None]] = []

    def observe(node: Node, now: float, kind: Kind, seconds: float, retry_after: float | None) -> None:
        heard.append((kind, retry_after))

    node = rig.lane.upstream.nodes[0]
    node.observers = (*node.observers, observe)
    return heard


@pytest.mark.parametrize(
    ("said", "learnt"),
    [
        (answer(429), (Kind.PUSHBACK, None)),
        (answer(429, b"Retry-After: 7"), (Kind.PUSHBACK, 7.0)),
        (answer(503, b"Retry-After: 3"), (Kind.PUSHBACK, 3.0)),
        (answer(503, b"Retry-After: 0"), (Kind.PUSHBACK, 0.0)),
        (answer(503, b"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"), (Kind.PUSHBACK, None)),
        (answer(503), (Kind.ERROR, None)),
        (answer(500), (Kind.ERROR, None)),
        (answer(502, b"Retry-After: 3"), (Kind.ERROR, 3.0)),
        (answer(404, b"Retry-After: 3"), (Kind.OK, None)),
        (answer(200), (Kind.OK, None)),
    ],
    ids=lambda value: value.decode().replace("\r\n", " ") if isinstance(value, bytes) else "",
)
async def test_an_answer_teaches_its_kind_and_when_to_come_again(
    said: bytes, learnt: tuple[Kind, float | None], rig: Rig
) -> None:
    await rig.open(retries=BARE)
    heard = listen(rig)
    rig.backend.script(serve(said))

    response = await rig.ask()

    assert response.status == int(said[9:12])
    assert heard == [learnt]


@pytest.mark.parametrize(
    ("said", "ejected"),
    [(answer(429), False), (answer(503, b"Retry-After: 1"), False), (answer(503), True)],
    ids=["429", "503 with Retry-After", "503"],
)
async def test_back_pressure_never_ejects(said: bytes, ejected: bool, rig: Rig) -> None:
    await rig.open(backends=2, retries=BARE, health=QUICK, algorithm=Algorithm(type="RoundRobin"))
    for backend in rig.backends:
        backend.script(serve(said))

    for _ in range(8):
        await rig.ask()

    assert any(node.ejected_until is not None for node in rig.lane.upstream.nodes) is ejected


async def test_an_endpoint_that_asks_for_a_pause_is_left_alone_by_its_latency(rig: Rig) -> None:
    await rig.open(backends=2, retries=BARE, algorithm=Algorithm(type="PeakEWMA"))
    pausing = asyncio.Event()

    async def until_told(wire: Wire) -> None:
        while not pausing.is_set():
            await wire.take_head()
            await wire.send(answer(503, b"Retry-After: 300") if pausing.is_set() else OK)

    rig.backends[0].script(until_told, serve(answer(503, b"Retry-After: 300")))
    nodes = {node.id: node for node in rig.lane.upstream.nodes}
    async with asyncio.timeout(LIMIT):
        while not all(node.ewma for node in nodes.values()):
            assert (await rig.ask()).status == 200
        pausing.set()
        while (await rig.ask()).status != 503:
            pass

    assert nodes["b0"].ewma > PENALTY[1] > nodes["b1"].ewma
    assert {(await rig.ask()).status for _ in range(20)} == {200}
