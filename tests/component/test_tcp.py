"""TCP ports: connections balanced as a whole, their bytes and their endings passed on as they are."""

from __future__ import annotations

import asyncio
from random import Random
from socket import IPPROTO_TCP, SO_KEEPALIVE, SOL_SOCKET, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL
from typing import Any

import msgspec
import pytest

from controller.balancing.node import Kind
from controller.model.service import Algorithm, Limits, Retries, Timeouts
from controller.model.snapshot import SnapshotProxy
from controller.proxy.drain import drain
from controller.proxy.tcp import TcpFront
from tests.component.rig import (
    SETTINGS,
    Rig,
    Step,
    Wire,
    black_hole,
    fin,
    half_close,
    recv,
    recv_to,
    rst,
    send,
    stall,
    stop_reading,
    wait_for,
)

MIB = 1024 * 1024
HELD = 512 * 1024  # what one connection may hold in the proxy


def echo() -> Step:
    """Send back what comes, and end when the client does."""

    async def step(wire: Wire) -> None:
        while wire.ending == "open" or wire.taken < len(wire.received):
            await wire.until(lambda: len(wire.received) > wire.taken or wire.ending != "open")
            data = bytes(wire.received[wire.taken :])
            wire.taken += len(data)
            await wire.send(data)
        wire.half_close()

    return step


async def opened(rig: Rig, *steps: Step, backends: int = 1, **fields: Any) -> None:
    await rig.open(protocol="TCP", backends=backends, **fields)
    for backend in rig.backends:
        backend.script(*(steps or (echo(),)))


async def ended(rig: Rig) -> None:
    await rig.reached(lambda: not rig.plane.fronts)


def front(rig: Rig) -> TcpFront:
    (found,) = rig.plane.fronts
    assert isinstance(found, TcpFront)
    return found


# What passes.


async def test_bytes_pass_both_ways(rig: Rig) -> None:
    await opened(rig)
    client = await rig.connect()

    await client.send(b"\x00\xff\r\n\r\n")

    assert await client.take(6) == b"\x00\xff\r\n\r\n"
    assert rig.lane.upstream.nodes[0].inflight == 1


async def test_an_endpoint_may_speak_first(rig: Rig) -> None:
    await opened(rig, send(b"220 ready\r\n"), recv(4), stall())
    client = await rig.connect()

    assert await client.take(11) == b"220 ready\r\n"


async def test_a_half_close_of_the_client_leaves_the_way_back_open(rig: Rig) -> None:
    await opened(rig, stall(), send(b"after your FIN"), half_close())
    client = await rig.connect()

    await client.send(b"question")
    client.half_close()

    assert await client.to_end() == ("FIN", b"after your FIN")
    await ended(rig)
    assert bytes(rig.backend.connections[0].received) == b"question"
    assert rig.outcomes == {"carried": 1}


async def test_a_half_close_of_the_endpoint_leaves_the_way_there_open(rig: Rig) -> None:
    await opened(rig, send(b"bye"), half_close(), recv(6))
    client = await rig.connect()

    assert await client.to_end() == ("FIN", b"bye")
    await client.send(b"thanks")
    client.half_close()

    await ended(rig)
    assert bytes(rig.backend.connections[0].received) == b"thanks"
    assert rig.backend.connections[0].ending == "FIN"


async def test_a_fin_that_comes_before_the_connect_is_passed_on(rig: Rig) -> None:
    with black_hole() as port:
        await opened(rig, stall(), send(b"got it"), fin(), timeouts=Timeouts(connect=0.1))
        await rig.apply(
            algorithm=Algorithm(type="RoundRobin"),
            endpoints=(rig.endpoint(rig.backend, id="hole", port=port), rig.endpoint(rig.backend)),
        )
        for _ in range(2):
            client = await rig.connect()
            await client.send(b"all there is")
            client.half_close()

            assert await client.to_end() == ("FIN", b"got it")

        await ended(rig)
    assert [bytes(wire.received) for wire in rig.backend.connections] == [b"all there is"] * 2


@pytest.mark.parametrize("side", ["client", "backend"])
async def test_a_reset_is_passed_on_as_a_reset(side: str, rig: Rig) -> None:
    go = asyncio.Event()
    await opened(rig, send(b"x"), *((wait_for(go), rst()) if side == "backend" else (stall(),)))
    client = await rig.connect()
    await client.take(1)

    if side == "client":
        client.rst()
        other = rig.backend.connections[0]
    else:
        go.set()
        other = client
    await other.until(lambda: other.ending != "open")

    assert other.ending == "RST"
    await ended(rig)
    assert rig.learnt == [Kind.OK]


async def test_ten_mebibytes_pass_both_ways_at_once_byte_for_byte(rig: Rig) -> None:
    there, back = Random(1).randbytes(10 * MIB), Random(2).randbytes(10 * MIB)
    await opened(rig, send(back), half_close(), stall())
    client = await rig.connect()

    await client.send(there)
    client.half_close()

    assert await client.to_end() == ("FIN", back)
    await ended(rig)
    assert rig.backend.connections[0].received == there


# Bounded memory.


async def test_a_client_that_does_not_read_stops_the_endpoint(rig: Rig) -> None:
    data = Random(3).randbytes(32 * MIB)
    await opened(rig, send(data), stall())
    client = await rig.connect()
    client.stop_reading()
    await rig.reached(lambda: rig.plane.memory.held > 0)
    most = 0
    for _ in range(50):
        await asyncio.sleep(0.002)
        most = max(most, rig.plane.memory.held)

    assert most <= HELD
    assert rig.backend.connections[0].transport.get_write_buffer_size() > MIB
    client.start_reading()
    assert await client.take(len(data)) == data


async def test_an_endpoint_that_does_not_read_stops_the_client(rig: Rig) -> None:
    data = Random(4).randbytes(32 * MIB)
    go = asyncio.Event()

    async def read_on(wire: Wire) -> None:
        wire.start_reading()
        await wire.take(len(data))

    await opened(rig, send(b"x"), stop_reading(), wait_for(go), read_on, send(b"all"), stall())
    client = await rig.connect()
    await client.take(1)
    await client.send(data)
    await rig.reached(lambda: rig.plane.memory.held > 0)
    most = 0
    for _ in range(50):
        await asyncio.sleep(0.002)
        most = max(most, rig.plane.memory.held)

    assert most <= HELD
    assert client.transport.get_write_buffer_size() > MIB
    go.set()
    assert await client.take(3) == b"all"
    assert rig.backend.connections[0].received == data


async def test_what_a_client_sends_before_the_connect_stays_in_the_kernel(rig: Rig) -> None:
    with black_hole() as port:
        await opened(rig, timeouts=Timeouts(connect=0.3), retries=Retries(attempts=0))
        await rig.apply(endpoints=(rig.endpoint(rig.backend, id="hole", port=port),))
        client = await rig.connect()

        await client.send(bytes(MIB))
        await rig.reached(lambda: front(rig).node is not None)
        await asyncio.sleep(0.05)

        assert len(front(rig)._early) <= 1
        assert await client.to_end() == ("RST", b"")


# Time.


async def test_both_connections_are_probed_while_they_are_silent(rig: Rig) -> None:
    await opened(rig, send(b"x"), stall())
    client = await rig.connect()
    await client.take(1)
    tunnel = front(rig)._tunnel
    assert tunnel is not None

    for side in (tunnel.client, tunnel.backend):
        sock = side.transport.get_extra_info("socket")
        assert sock.getsockopt(SOL_SOCKET, SO_KEEPALIVE) == 1
        times = [sock.getsockopt(IPPROTO_TCP, name) for name in (TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT)]
        assert times == [60, 10, 3]


async def test_a_connection_without_a_byte_either_way_is_closed(rig: Rig) -> None:
    await opened(rig, timeouts=Timeouts(tcp_idle=0.3, idle=0.05, request=0.05))
    client = await rig.connect()
    for _ in range(8):
        await client.send(b"x")
        await client.take(1)
        await asyncio.sleep(0.05)

    assert await client.to_end() == ("FIN", b"")

    await ended(rig)
    assert rig.outcomes == {"idle": 1}


async def test_a_black_holed_endpoint_costs_the_connect_timeout_and_then_a_reset(rig: Rig) -> None:
    with black_hole() as port:
        await opened(rig, timeouts=Timeouts(connect=0.1), retries=Retries(attempts=0))
        await rig.apply(endpoints=(rig.endpoint(rig.backend, id="hole", port=port),))
        began = rig.loop.time()
        client = await rig.connect()

        assert await client.to_end() == ("RST", b"")

        assert 0.09 <= rig.loop.time() - began < 1
        assert (rig.learnt, rig.outcomes) == ([Kind.CONNECT], {"connect_timeout": 1})


async def test_a_black_holed_endpoint_delays_no_other_connection(rig: Rig) -> None:
    with black_hole() as port:
        await opened(rig, timeouts=Timeouts(connect=2), algorithm=Algorithm(type="RoundRobin"))
        await rig.apply(endpoints=(rig.endpoint(rig.backend, id="hole", port=port), rig.endpoint(rig.backend)))
        clients = [await rig.connect() for _ in range(2)]
        began = rig.loop.time()

        for client in clients:
            await client.send(b"x")
        answers = [asyncio.ensure_future(client.take(1)) for client in clients]
        await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)

        assert rig.loop.time() - began < 1
        for client in clients:
            client.rst(flush=False)
        await asyncio.wait(answers)
        await ended(rig)


# Retries.


async def test_with_one_of_two_endpoints_refusing_every_connection_is_served(rig: Rig) -> None:
    await opened(rig, backends=2, algorithm=Algorithm(type="RoundRobin"))
    rig.backends[0].refuse()

    for _ in range(20):
        client = await rig.connect()
        await client.send(b"ping")
        assert await client.take(4) == b"ping"
        client.fin()

    await ended(rig)
    assert rig.outcomes == {"carried": 20}
    assert len(rig.backends[1].connections) == 20
    assert rig.telemetry.retries["store/shop", "ConnectFailure"] == rig.learnt.count(Kind.CONNECT) > 0


async def test_a_connection_that_nobody_takes_is_reset(rig: Rig) -> None:
    await opened(rig)
    rig.backend.refuse()
    client = await rig.connect()

    assert await client.to_end() == ("RST", b"")

    assert rig.learnt == [Kind.CONNECT, Kind.CONNECT]
    assert rig.outcomes == {"connect_failure": 1}


async def test_without_connect_failures_among_the_conditions_there_is_one_try(rig: Rig) -> None:
    await opened(rig, retries=Retries(conditions=("Reset",)))
    rig.backend.refuse()
    client = await rig.connect()

    await client.to_end()

    assert rig.learnt == [Kind.CONNECT]


async def test_a_reset_before_the_first_byte_is_learnt_and_not_tried_again(rig: Rig) -> None:
    await opened(rig, recv(4), rst())
    client = await rig.connect()

    await client.send(b"ping")

    assert (await client.to_end())[0] == "RST"
    await ended(rig)
    assert rig.learnt == [Kind.OK, Kind.RESET]
    assert (rig.outcomes, len(rig.backend.connections)) == ({"reset": 1}, 1)


# Admission.


async def test_a_full_endpoint_makes_connections_wait_their_turn(rig: Rig) -> None:
    await opened(rig, limits=Limits(max_requests_per_endpoint=1))
    first = await rig.connect()
    await first.send(b"x")
    await first.take(1)
    second = await rig.connect()
    await second.send(b"y")
    await rig.reached(lambda: len(rig.lane.queue) == 1)

    first.fin()

    assert await second.take(1) == b"y"


async def test_who_waits_too_long_is_reset(rig: Rig) -> None:
    await opened(rig, limits=Limits(max_requests_per_endpoint=1, queue_timeout=0.1))
    first = await rig.connect()
    await first.send(b"x")
    await first.take(1)
    second = await rig.connect()

    assert (await second.to_end())[0] == "RST"

    assert rig.outcomes == {"queue_timeout": 1}


async def test_a_client_that_leaves_the_queue_frees_its_place(rig: Rig) -> None:
    await opened(rig, limits=Limits(max_requests_per_endpoint=1, queue=1))
    first = await rig.connect()
    await first.send(b"x")
    await first.take(1)
    second = await rig.connect()
    await second.send(b"y")
    await rig.reached(lambda: len(rig.lane.queue) == 1)

    second.rst()

    await rig.reached(lambda: len(rig.lane.queue) == 0)
    assert rig.outcomes == {"client_left": 1}


async def test_a_client_that_leaves_during_the_connect_is_neutral(rig: Rig) -> None:
    with black_hole() as port:
        await opened(rig, timeouts=Timeouts(connect=5))
        await rig.apply(endpoints=(rig.endpoint(rig.backend, id="hole", port=port),))
        client = await rig.connect()
        await rig.reached(lambda: bool(rig.plane.fronts) and front(rig).node is not None)

        client.rst(flush=False)

        await ended(rig)
        assert (rig.learnt, rig.outcomes) == ([], {"client_left": 1})


async def test_connections_over_the_limit_are_reset(rig: Rig) -> None:
    await opened(rig, limits=Limits(max_connections=1))
    first = await rig.connect()
    await first.send(b"x")
    await first.take(1)
    second = await rig.connect()

    assert (await second.to_end())[0] == "RST"

    assert (rig.telemetry.refused_connections, rig.outcomes) == (1, {"max_connections": 1})
    await first.send(b"y")
    assert await first.take(1) == b"y"


async def test_without_an_endpoint_a_connection_is_reset(rig: Rig) -> None:
    await opened(rig)
    await rig.apply(endpoints=(rig.endpoint(rig.backend, state="PARKED"),))
    client = await rig.connect()

    assert (await client.to_end())[0] == "RST"

    assert rig.outcomes == {"no_endpoints": 1}


async def test_one_address_stays_on_one_endpoint(rig: Rig) -> None:
    await opened(rig, backends=4, algorithm=Algorithm(type="SourceHash"))

    for _ in range(8):
        client = await rig.connect()
        await client.send(b"x")
        await client.take(1)
        client.fin()

    assert sorted(len(backend.connections) for backend in rig.backends) == [0, 0, 0, 8]


# What is told.


async def test_bytes_are_counted_while_a_connection_is_open(rig: Rig) -> None:
    await opened(rig, recv(4), send(b"answer"), stall())
    client = await rig.connect()
    await client.send(b"ping")
    await client.take(6)

    rig.plane.gauges()
    rig.plane.gauges()
    counts = rig.telemetry.requests("store/shop", "all")
    assert (counts.received, counts.sent) == (4, 6)

    client.rst()
    await ended(rig)
    assert (counts.received, counts.sent) == (4, 6)


async def test_a_line_is_logged_for_each_connection(rig: Rig) -> None:
    await opened(rig, recv_to(b"\n"), send(b"answer"), fin())
    client = await rig.connect()
    await client.send(b"ping\n")
    await client.to_end()
    client.fin()
    await ended(rig)

    rig.plane.access_log.flush()
    (line,) = rig.log

    assert line["endpoint"] == f"127.0.0.1:{rig.backend.port}"
    assert (line["client"], line["outcome"], line["tries"]) == ("127.0.0.1", "carried", 1)
    assert (line["received"], line["sent"]) == (5, 6)
    assert 0 < line["connect_seconds"] <= line["seconds"]


# Nobody reads.


async def test_a_client_that_leaves_while_its_endpoint_reads_nothing_is_noticed(rig: Rig) -> None:
    await opened(rig, recv(1), stop_reading(), stall())
    client = await rig.connect()
    await client.send(b"x" * 20_000_000)
    await rig.reached(lambda: rig.plane.memory.held > 0)
    upstream = await rig.backend.connection()

    client.rst(flush=False)

    await ended(rig)
    upstream.start_reading()
    assert (await upstream.to_end())[0] == "RST"


async def test_short_of_memory_a_connection_that_stands_still_is_cut(rig: Rig) -> None:
    settings = msgspec.structs.replace(SETTINGS, memory=300_000)
    await rig.open(settings=settings, protocol="TCP")
    rig.backend.script(recv(1), send(bytes(20_000_000)), stall())
    client = await rig.connect()
    client.stop_reading()
    await client.send(b"x")
    await rig.reached(lambda: rig.plane.memory.tight)

    await ended(rig)

    assert rig.outcomes == {"memory": 1}


# Endpoints that go away, and the proxy's own drain.


async def busy(rig: Rig) -> Wire:
    client = await rig.connect()
    await client.send(b"x")
    await client.take(1)
    return client


async def test_a_connection_to_an_endpoint_that_is_gone_has_its_drain_and_is_then_cut(rig: Rig) -> None:
    await opened(rig, backends=2, proxy=SnapshotProxy(drain=0.1))
    client = await busy(rig)
    (other,) = (backend for backend in rig.backends if not backend.connections)

    await rig.apply(endpoints=(rig.endpoint(other),))

    assert await client.to_end() == ("FIN", b"")
    await ended(rig)
    assert (rig.outcomes, rig.telemetry.drain_cut) == ({"drain_cut": 1}, 1)


async def test_a_connection_to_an_endpoint_that_is_parked_or_returns_is_not_cut(rig: Rig) -> None:
    await opened(rig, backends=2, proxy=SnapshotProxy(drain=0.1))
    client = await busy(rig)
    used, other = sorted(rig.backends, key=lambda backend: -len(backend.connections))

    await rig.apply(endpoints=(rig.endpoint(other),))
    await rig.apply(endpoints=(rig.endpoint(other), rig.endpoint(used, state="PARKED")))
    await asyncio.sleep(0.2)
    await client.send(b"y")

    assert await client.take(1) == b"y"


async def test_a_leaving_proxy_lets_connections_end_by_themselves(rig: Rig) -> None:
    await opened(rig, proxy=SnapshotProxy(accept_grace=0.1, drain=5))
    client = await busy(rig)

    leaving = asyncio.create_task(drain(rig.plane, asyncio.Event()))
    await rig.reached(lambda: not rig.plane.addresses)
    await client.send(b"y")
    assert await client.take(1) == b"y"
    client.fin()

    assert await leaving == 0
    assert rig.outcomes == {"carried": 1}


async def test_what_outlasts_the_drain_is_cut(rig: Rig) -> None:
    await opened(rig, proxy=SnapshotProxy(accept_grace=0, drain=0.1))
    client = await busy(rig)

    assert await drain(rig.plane, asyncio.Event()) == 1

    assert await client.to_end() == ("FIN", b"")
    assert rig.outcomes == {"drain_cut": 1}
