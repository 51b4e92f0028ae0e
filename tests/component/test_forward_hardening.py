"""What must not cost more than its own request: bugs, panics of the codec, lost logs, hoarders, half-dead endpoints.

And the decision trace, which tells who has the key why a request went where it did.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from prometheus_client.exposition import generate_latest

from controller.balancing.node import Node
from controller.line_writer import LineWriter
from controller.model.endpoints import Endpoint
from controller.model.service import (
    Affinity,
    Algorithm,
    AlgorithmType,
    Cookie,
    Health,
    Limits,
    PassiveHealth,
    Retries,
    Timeouts,
)
from controller.model.snapshot import SnapshotProxy
from controller.proxy.access_log import AccessLog
from controller.proxy.edge import guarded, is_bug
from tests.component.rig import (
    OK,
    SETTINGS,
    Response,
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
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
# Each extension module that PyO3 makes has a class like this: no Exception, and never importable by its name.
PanicException = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


def stumbling(rig: Rig, fault: type[BaseException]) -> None:
    """The next answer's head meets a fault in what learns of it."""
    (node,) = rig.lane.upstream.nodes
    learn, rig.bugs = node.observers, 1

    def stumble(*_: object) -> None:
        node.observers = learn
        raise fault("stumbled")

    node.observers = (stumble,)


async def test_a_panic_of_the_codec_costs_its_request_only(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    await rig.open()
    stumbling(rig, PanicException)

    failed = await rig.ask()

    assert (failed.status, failed.get("connection")) == (500, "close")
    assert [record.message for record in caplog.records] == ["bug while forwarding"]
    assert "PanicException" in caplog.text
    assert (await rig.ask()).status == 200
    assert rig.outcomes == {"internal_error": 1, "2xx": 1}


def test_the_end_of_the_process_is_no_bug() -> None:
    assert not is_bug(KeyboardInterrupt())
    assert not is_bug(asyncio.CancelledError())
    assert is_bug(PanicException())
    assert is_bug(ZeroDivisionError())

    class Payer:
        def bug(self, error: BaseException) -> None:
            raise AssertionError("it must not pay for this")

    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guarded(Payer(), end)


def faulty(*_: object) -> Node:
    raise ZeroDivisionError


async def _at_the_connect(rig: Rig, client: Wire) -> None:
    stumbling(rig, ZeroDivisionError)
    rig.backend.refuse()
    await client.send(GET)


async def _at_a_deadline(rig: Rig, client: Wire) -> None:
    stumbling(rig, ZeroDivisionError)
    rig.backend.script(recv_head(), stall())
    await client.send(GET)


async def _behind_a_pause(rig: Rig, client: Wire) -> None:
    await rig.apply(retries=Retries(attempts=9))
    rig.bugs = 1
    rig.backend.refuse()
    await client.send(GET)
    await rig.reached(lambda: any(front.exchange and front.exchange.backoff for front in rig.plane.fronts))
    rig.lane.upstream.pick = faulty


async def _out_of_the_queue(rig: Rig, client: Wire) -> None:
    await rig.apply(limits=Limits(max_requests_per_endpoint=1))
    rig.bugs = 1
    answered = asyncio.Event()
    rig.backend.script(recv_head(), wait_for(answered), send(OK), stall())
    first = await rig.connect()
    await first.send(GET)
    await rig.backend.connection()
    await client.send(GET)
    await rig.reached(lambda: len(rig.lane.queue) == 1)
    rig.lane.upstream.pick = faulty
    answered.set()
    await first.response()


@pytest.mark.parametrize("moment", [_at_the_connect, _at_a_deadline, _behind_a_pause, _out_of_the_queue])
async def test_a_bug_that_the_loop_meets_by_itself_is_answered_too(
    moment: Callable[[Rig, Wire], Awaitable[None]], rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody above would see the fault: the client would wait for ever, and the node would look busy."""
    await rig.open(timeouts=Timeouts(response=0.2))
    client = await rig.connect()

    await moment(rig, client)
    response = await client.response()

    assert (response.status, response.get("connection")) == (500, "close")
    assert [record.message for record in caplog.records] == ["bug while forwarding"]


@contextmanager
def slamming(linger: int) -> Iterator[Endpoint]:
    """Accepts and ends at once: by a reset, as a process does that is killed with a full accept queue, or by a FIN."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", linger, 0))
                sock.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield Endpoint(id="slamming", address="127.0.0.1", port=listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("linger", [0, 1], ids=["FIN", "RST"])
async def test_a_connection_that_ends_as_soon_as_it_is_made_hangs_nobody(linger: int, rig: Rig) -> None:
    """The end may come before the request was written: then no timeout may have to find it."""
    await rig.open(retries=Retries(attempts=0), timeouts=Timeouts(response=30))
    with slamming(linger) as endpoint:
        await rig.apply(endpoints=(endpoint,), health=Health(passive=PassiveHealth(consecutive_failures=0)))

        answers = [await rig.ask() for _ in range(200)]

    assert {answer.status for answer in answers} == {502}
    assert rig.outcomes.keys() <= {"reset", "connect_failure"}


async def test_a_log_that_nobody_reads_costs_no_request(rig: Rig) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    await rig.open()
    rig.plane.access_log = AccessLog(LineWriter(writer))

    answers = [await rig.ask() for _ in range(3)]
    await rig.reached(lambda: rig.plane.access_log.lost == 3)

    assert {answer.status for answer in answers} == {200}
    assert b"steelyard_log_lines_lost_total 3.0" in generate_latest(rig.telemetry.registry())
    rig.plane.access_log.close()
    os.close(writer)


async def test_an_answer_to_no_request_has_its_line_in_the_log(rig: Rig) -> None:
    await rig.open()

    refused = await rig.ask(b"GET / HTTP/1.1\r\n\r\n")
    rig.plane.access_log.flush()

    (line,) = rig.log
    assert (line["status"], line["outcome"], line["client"]) == (400, "malformed_request", "127.0.0.1")
    assert line["id"] == refused.get("x-request-id")


async def test_pipelined_bytes_count_as_held_and_a_hoarder_is_dropped(rig: Rig) -> None:
    await rig.open(settings=msgspec.structs.replace(SETTINGS, memory=100_000))
    answer = asyncio.Event()
    rig.backend.script(recv_head(), wait_for(answer), send(OK), stall())
    client = await rig.connect()
    await client.send(GET)
    await rig.backend.connection()

    await client.send(bytes(60_000))
    await rig.reached(lambda: rig.plane.memory.held == 60_000)
    hoarder = await rig.connect()
    await hoarder.send(GET)
    upstream = await rig.backend.connection(1)
    await upstream.until(lambda: bool(upstream.received))
    await hoarder.send(bytes(60_000))

    assert (await hoarder.to_end())[0] == "RST"
    assert rig.outcomes == {"memory": 1}
    await rig.reached(lambda: rig.plane.memory.held == 60_000)
    answer.set()
    assert [(await client.response()).status for _ in range(2)] == [200, 400]
    assert rig.plane.memory.held == 0


async def test_an_upload_that_the_endpoint_does_not_read_counts_as_held(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), stop_reading(), stall())
    client = await rig.connect()

    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n")
    upstream = await rig.backend.connection()
    await client.send(b"x" * 20_000_000)
    await rig.reached(lambda: all(front.paused(front.UPSTREAM) for front in rig.plane.fronts))
    held = rig.plane.memory.held
    upstream.rst(flush=False)

    assert (await client.response()).status == 502
    assert held > SETTINGS.write_high
    await rig.reached(lambda: rig.plane.memory.held == 0)


async def test_a_begun_head_is_served_although_the_listener_stops(rig: Rig) -> None:
    await rig.open()
    client = await rig.connect()
    await client.send(GET[:20])
    await rig.reached(lambda: rig.plane.memory.held > 0)

    rig.plane.announce()
    await rig.plane.stop_listening()
    await client.send(GET[20:])
    response = await client.response()

    assert (response.status, response.get("connection")) == (200, "close")


async def test_a_race_is_not_replayed_to_an_endpoint_that_may_no_longer_be_picked(rig: Rig) -> None:
    await rig.open(backends=2, retries=Retries(attempts=0))
    leave = asyncio.Event()
    for backend in rig.backends:
        backend.scripts((recv_head(), send(OK), recv_head(), wait_for(leave), fin()), (serve(OK),))
    client = await rig.connect()
    await client.send(GET)
    await client.response()
    first = next(backend for backend in rig.backends if backend.connections)
    other = next(backend for backend in rig.backends if backend is not first)
    await rig.apply(endpoints=(rig.endpoint(first),))
    await client.send(GET)
    await rig.reached(lambda: first.connections[0].received.count(b"GET") == 2)

    other.scripts((serve(OK),))
    await rig.apply(endpoints=(rig.endpoint(first, state="PARKED"), rig.endpoint(other)))
    leave.set()

    assert (await client.response()).status == 200
    assert (len(first.connections), len(other.connections)) == (1, 1)


# The decision.

KEY = "open-sesame"
ASKING = b"GET / HTTP/1.1\r\nHost: a\r\nX-Steelyard-Debug: open-sesame\r\n\r\n"


def told(response: Response) -> dict[str, str]:
    return {name.removeprefix("x-steelyard-"): value for name, value in response.fields if "x-steelyard" in name}


async def debugged(rig: Rig, backends: int = 1, **fields: object) -> None:
    await rig.open(backends=backends, proxy=SnapshotProxy(debug_key=KEY), **fields)


@pytest.mark.parametrize(
    ("algorithm", "cost"),
    [
        ("PowerOfTwoChoices", "cost=0"),
        ("LeastConnections", "cost=0"),
        ("PeakEWMA", "cost="),
        ("RoundRobin", None),
        ("Random", None),
        ("SourceHash", None),
        ("ConsistentHash", None),
    ],
)
async def test_the_decision_is_told_to_who_has_the_key(algorithm: AlgorithmType, cost: str | None, rig: Rig) -> None:
    await debugged(rig, backends=3, algorithm=Algorithm(type=algorithm))

    found = told(await rig.ask(ASKING))

    served = next(backend for backend in rig.backends if backend.connections)
    costs = found.pop("costs").split(", ")
    assert found == {
        "endpoint": f"127.0.0.1:{served.port}",
        "reason": algorithm,
        "tries": "1",
        "rung": "all;level=0;load=100;rung=all",
        "candidates": "3",
    }
    assert {each.split(";")[0] for each in costs} == {f"127.0.0.1:{backend.port}" for backend in rig.backends}
    assert all(";level=0;weight=1;load=0" in each for each in costs)
    assert all((cost in each) if cost else ("cost" not in each) for each in costs)


async def test_an_upgrade_is_bound_and_told_of_like_any_answer(rig: Rig) -> None:
    await debugged(rig, affinity=Affinity(cookie=Cookie()))
    rig.backend.script(recv_head(), send(SWITCH), stall())
    client = await rig.connect()

    await client.send(ASKING[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    switched = await client.response(bodyless=True)
    client.rst()

    assert switched.status == 101
    assert switched.get("set-cookie") is not None
    assert told(switched)["endpoint"] == f"127.0.0.1:{rig.backend.port}"


@pytest.mark.parametrize("line", [b"", b"X-Steelyard-Debug: open-sesam\r\n", b"X-Steelyard-Debug:\r\n"])
async def test_nothing_is_told_without_the_key(line: bytes, rig: Rig) -> None:
    await debugged(rig)

    assert told(await rig.ask(b"GET / HTTP/1.1\r\nHost: a\r\n" + line + b"\r\n")) == {}


async def test_no_backend_learns_the_key(rig: Rig) -> None:
    """Whether one is in force or not: what shows it may come from a proxy in front that has one."""
    await debugged(rig)
    await rig.ask(ASKING)
    await rig.apply(proxy=SnapshotProxy())

    assert told(await rig.ask(ASKING)) == {}
    seen = b"".join(bytes(wire.received) for wire in rig.backend.connections)
    assert seen.count(b"GET / ") == 2
    assert b"sesame" not in seen
    assert b"steelyard-debug" not in seen.lower()


async def test_the_decision_tells_of_retries_and_of_answers_of_the_proxys_own(rig: Rig) -> None:
    await debugged(rig, backends=2, algorithm=Algorithm(type="RoundRobin"))
    dead, alive = rig.backends
    dead.refuse()
    alive.script(recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), fin())

    found = [told(await rig.ask(ASKING)) for _ in range(2)]
    retried = next(each for each in found if each["tries"] == "2")
    alive.refuse()
    failed = told(await rig.ask(ASKING))
    await rig.apply(endpoints=(rig.endpoint(dead, state="PARKED"),))
    none = told(await rig.ask(ASKING))

    assert (retried["endpoint"], retried["tried"]) == (f"127.0.0.1:{alive.port}", f"127.0.0.1:{dead.port}")
    assert (failed["reason"], failed["tries"]) == ("connect_failure", "2")
    assert none == {"endpoint": "none", "reason": "no_endpoints", "tries": "0", "candidates": "0"}


async def test_the_decision_tells_of_affinity(rig: Rig) -> None:
    await debugged(rig, backends=3, affinity=Affinity(cookie=Cookie()))
    first = await rig.ask(ASKING)
    cookie = (first.get("set-cookie") or "").partition(";")[0].encode()

    bound = await rig.ask(ASKING[:-2] + b"Cookie: " + cookie + b"\r\n\r\n")

    assert (told(first)["reason"], told(bound)["reason"]) == ("PowerOfTwoChoices", "affinity")
    assert told(first)["endpoint"] == told(bound)["endpoint"]


async def test_ejections_and_verdicts_are_counted_by_cause(rig: Rig) -> None:
    passive = PassiveHealth(consecutive_failures=2)
    await rig.open(backends=2, health=Health(passive=passive), retries=Retries(attempts=0))
    rig.backends[0].script(serve(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"))
    node = rig.lane.upstream.nodes[0]

    while node.ejected_until is None:
        await rig.ask()
    rig.lane.upstream.judge(node, healthy=False)
    rig.lane.upstream.judge(node, healthy=False)
    shown = generate_latest(rig.telemetry.registry()).decode()

    assert 'steelyard_ejections_total{cause="consecutive failures",service="store/shop"} 1.0' in shown
    assert 'steelyard_check_verdicts_total{service="store/shop",verdict="unhealthy"} 1.0' in shown


async def test_short_of_memory_who_stands_still_goes_and_who_reads_slowly_stays(rig: Rig) -> None:
    """Each reader holds a piece of 256 kB: two are more than three quarters of this budget, one is not."""
    await rig.open(settings=msgspec.structs.replace(SETTINGS, memory=600_000))
    body = bytes(20_000_000)
    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body), stall())
    still = await rig.connect()
    still.stop_reading()
    await still.send(GET)
    with socket.socket() as moving:
        moving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        moving.setblocking(False)
        await rig.loop.sock_connect(moving, ("127.0.0.1", rig.port))
        await rig.loop.sock_sendall(moving, GET)
        await rig.reached(lambda: rig.plane.memory.tight)

        while len(rig.plane.fronts) == 2:
            assert await rig.loop.sock_recv(moving, 16_384)
            await asyncio.sleep(0.02)
        still.start_reading()

        assert (await still.to_end())[0] == "RST"
        assert await rig.loop.sock_recv(moving, 16_384)
        assert rig.outcomes == {"client_slow": 1}


async def test_over_the_budget_who_has_not_read_for_the_longest_time_makes_room_at_once(rig: Rig) -> None:
    """Each reader holds a piece of 256 kB: two fill this budget, and were let in before they held anything."""
    await rig.open(settings=msgspec.structs.replace(SETTINGS, memory=600_000))
    body, all_came = bytes(20_000_000), asyncio.Event()
    answer = send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    rig.backend.script(recv_head(), wait_for(all_came), answer, stall())
    clients = [await rig.connect() for _ in range(4)]
    for client in clients:
        client.stop_reading()
        await client.send(GET)
    await rig.backend.connection(3)
    all_came.set()

    await rig.reached(lambda: rig.outcomes == {"client_slow": 2})

    assert rig.plane.memory.held <= 600_000
    assert len(rig.plane.fronts) == 2


async def test_a_body_that_waits_for_its_endpoint_is_refused_when_the_budget_is_used_up(rig: Rig) -> None:
    settings = msgspec.structs.replace(SETTINGS, memory=100_000)
    await rig.open(settings=settings, limits=Limits(max_requests_per_endpoint=1, queue=10))
    rig.backend.script(recv_head(), stall())
    first = await rig.connect()
    await first.send(GET)
    await rig.backend.connection()
    waiting = await rig.connect()

    await waiting.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n")
    await rig.reached(lambda: len(rig.lane.queue) == 1)
    await waiting.send(b"x" * 200_000)

    assert (await waiting.response()).status == 503
    assert rig.plane.memory.held == 0
    assert rig.outcomes == {"memory": 1}


async def test_a_client_that_leaves_while_its_endpoint_reads_nothing_costs_the_endpoint_its_request(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), stop_reading(), stall())
    client = await rig.connect()
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n")
    await client.send(b"x" * 20_000_000)
    await rig.reached(lambda: all(front.paused(front.UPSTREAM) for front in rig.plane.fronts))

    client.rst(flush=False)

    await rig.reached(lambda: not rig.plane.fronts)
    assert rig.outcomes == {"client_left": 1}


async def test_a_client_that_leaves_behind_a_pipelined_request_cancels_the_one_in_service(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), stall())
    client = await rig.connect()
    await client.send(GET + GET)
    await rig.reached(lambda: all(front.paused(front.PIPELINED) for front in rig.plane.fronts))

    client.rst(flush=False)

    await rig.reached(lambda: not rig.plane.fronts)
    assert rig.outcomes == {"client_left": 1}
